"""Fifty names that a model may bring, each of which means something to some reader of text."""

from __future__ import annotations

import onnx

NAMES = (
    # Python
    'E"+str(open("PWNED","w"))+"',
    "E'+str(open('PWNED','w'))+'",
    '"""\nopen("PWNED","w")\n"""',
    "'''\nopen('PWNED','w')\n'''",
    "x\nopen('PWNED','w')",
    "x):\n    open('PWNED','w')\ndef f(",
    '\\"+str(open("PWNED","w"))+\\"',
    "\\",
    '\\"',
    'ends with "',
    "{open('PWNED','w')}",
    "{{ cycler.__init__.__globals__.os.system('touch PWNED') }}",
    "{% raw %}",
    "%s%n{0}{name}",
    "class",
    "None",
    "self",
    "tensor",
    "num_outputs",
    "__debug__",
    "__import__('os').system('touch PWNED')",
    "My-Op",
    "3DConv",
    "a b",
    "a,b",
    "# comment",
    "ﬁne",
    "ªª",
    # C, MLIR, DOT, HTML, TOML
    '*/ #include "/etc/passwd" /*',
    "// \\\n",
    "??/",
    '"; system("touch PWNED"); //',
    '%0 = "evil.op"() : () -> ()',
    "x\n} func.func @evil() {",
    '"]; evil [label="x',
    "<b>bold</b>",
    "<script>alert(1)</script>",
    "</title></style></svg><script>alert(1)</script>",
    '" onload="alert(1)',
    "]]><!--",
    "&lt;&#0;&",
    'x" = 1\n[evil]\ny = "',
    "$(touch PWNED)`touch PWNED`",
    # terminals
    "\x1b[31mred\x1b]0;title\x07",
    "a\rgehost: all is well",
    "[red]a[/red]",
    "\u202egnp.exe\u2066",
    "a\u2028b\u2029c\x85d\x0be",
    "\x9b31m\x7f\x08",
    "\U0001f600\ufeff\u200b",
)


def model_of(name: str) -> onnx.ModelProto:
    """A model with this name at a function, its domain, its attribute, nodes, tensors and sizes."""
    proto = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 18, "d" : 1]>
        g (float[2, size] x) => (float[2, size] y) <float[1] w = {2}> {
            a = Relu (x)
            b = d.F <alpha = 0.5> (a)
            c = Mul (b, w)
            y = Softmax (c)
        }
        <domain: "d", opset_import: ["" : 18]> F <alpha: float = 0.25> (i) => (o) {
            o = LeakyRelu <alpha: float = @alpha> (i)
        }"""
    )
    graph, (function,) = proto.graph, proto.functions
    names = {old: f"{name}{number}" for number, old in enumerate("xabcyw")}
    for node in graph.node:
        node.input[:] = [names[old] for old in node.input]
        node.output[:] = [names[old] for old in node.output]
        node.name = f"{name} of {node.op_type}"
        node.doc_string = name
    for value in (graph.input[0], graph.output[0], graph.initializer[0]):
        value.name = names[value.name]
    for value in (graph.input[0], graph.output[0]):
        value.type.tensor_type.shape.dim[1].dim_param = name
    call = graph.node[1]
    call.op_type = function.name = name
    call.domain = function.domain = proto.opset_import[1].domain = f"d{name}"
    call.attribute[0].name = function.attribute_proto[0].name = name
    function.node[0].attribute[0].ref_attr_name = name
    graph.name = graph.doc_string = proto.producer_name = proto.doc_string = name
    proto.metadata_props.add(key=name, value=name)
    return proto
