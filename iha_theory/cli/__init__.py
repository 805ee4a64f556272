"""The `iha-theory` command.

- `main`: the parser; loads the one command that was typed. `errors`: what goes wrong becomes one line and an exit code.
- `output`: strict JSON, tables, progress.
- `capacity`: the command of `iha_theory.capacity`.

The other commands stand beside their subjects in the packages above and are found by the entry-point group
`iha_theory.commands` (pyproject.toml). A command is a module with `add_parser(commands)`, whose parser sets `run`, a
function from the parsed arguments to the exit code.
"""
