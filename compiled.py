"""Compiles what each rewrite runs through, beside its source, where Python prefers it: ``make compiled``.

The same outputs in less time: see tests/benchmarks/README.md. What differs: an argument of a wrong type is a TypeError at
once, where interpreted code may say more; classes that authors have no reason to derive from (``EsGraphBuilder``, ``Node``)
cannot be derived from, nor their methods replaced; very deep patterns end in no RecursionError; some errors have no
``__cause__``. Whoever edits one of these modules compiles again, or runs ``make interpreted``: the test suite refuses machine
code that is older than its source.
"""

from mypyc.build import mypycify
from setuptools import setup

HOT = """
ir/check ir/edits ir/ge ir/graph ir/index ir/journal ir/links ir/names ir/node ir/region ir/shapes
es/functions es/graph es/literals es/opset es/origin es/schemas
pattern/bind pattern/candidates pattern/compile pattern/conditions pattern/match
rewrite/history rewrite/plan rewrite/provenance rewrite/rewriter rewrite/transaction
passes/context passes/engine
infer/bounds infer/calls infer/contents infer/local infer/whole
passes/cleanup/cleaner passes/cleanup/dead passes/cleanup/fold passes/cleanup/identity
passes/cleanup/merge passes/cleanup/purity passes/cleanup/refine passes/cleanup/state
ir/admit ir/constants ir/external ir/skeleton ir/tensors
"""

if __name__ == "__main__":
    modules = mypycify(["--ignore-missing-imports", "--follow-imports=silent", *(f"gehost/{name}.py" for name in HOT.split())])
    setup(name="gehost", packages=[], ext_modules=modules, script_args=["--quiet", "build_ext", "--inplace", "--force"])
