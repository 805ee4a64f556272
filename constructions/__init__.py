"""constructions."""
