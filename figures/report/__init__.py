"""The report: one page of HTML that needs nothing else, made from checks that run now and from committed records.

- `work`: what is checked and counted, spread over processes, as plain data.
- `pictures`: pictures as data URIs, with their numbers; the runs of a folder as a table.
- `drawing`: the graph of the theory as shapes.
- `proofs`: passages of docs/ and of docstrings as HTML, formulas as MathML.
- `page`: all together by the templates, which have the style and the little script that filters and opens.
- `command`: `iha-theory report`.
"""
