"""The targets of ``gehost optimize --for``: one small file each."""
