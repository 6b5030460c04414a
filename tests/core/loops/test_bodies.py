"""Bodies: what can be written into a loop, and what has to be called."""

import ast
from types import FunctionType

import pytest

from headgate.core.loops.bodies import InlineBody, always_leaves, inline_body, stored_names


def body(text: str) -> InlineBody | None:
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.FunctionDef)
    names: dict[str, object] = {}
    exec(compile(text, "<test>", "exec"), names)
    function = names[node.name]
    assert isinstance(function, FunctionType)
    return inline_body(function, node)


@pytest.mark.parametrize(
    "text",
    [
        "def f(x): return x + 1",
        "def f(x):\n    'Adds.'\n    y = x + 1\n    return y * y",
        "def f(x):\n    if x:\n        y = 1\n    else:\n        y = 2\n    return y",
        "def f(x):\n    if not x:\n        return 0\n    y = x\n    return y",
        "def f(x):\n    y = 0\n    for item in x:\n        y += item\n    return y",
        "def f(x):\n    if x:\n        y = 1\n    else:\n        raise ValueError(x)\n    return y",
        "def f(x):\n    for item in x:\n        yield item, 1",
        "def f(x):\n    yield from x",
        "def f(x):\n    while x:\n        x -= 1\n        if x == 3: break\n    return x",
        "def f(self, x, ctx):\n    self.n += 1\n    yield x, self.n",
        "def f(x):\n    y: int = x\n    return f'{y}'",
    ],
)
def test_plain_bodies_are_accepted(text: str) -> None:
    assert body(text) is not None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def f(x):\n    if x:\n        y = 1\n    return y", "y of the record before"),
        ("def f(x):\n    y += x\n    return y", "y is never assigned"),
        ("def f(x):\n    for item in x:\n        pass\n    return item", "an empty x"),
        ("def f(x):\n    for item in x:\n        y = item\n    return y", "an empty x"),
        ("def f(x):\n    y: int\n    return y", "a note assigns nothing"),
        ("def f(x): return lambda: x", "the lambda would see a later x"),
        ("def f(x): return (y for y in range(x))", "it is read later"),
        ("def f(x):\n    for item in x:\n        return item", "a return out of a loop"),
        ("def f(x):\n    y = yield x\n    yield y", "somebody asks what yield answers"),
        (
            "def f(x):\n    try:\n        yield x\n    finally:\n        x = 0",
            "a frame to clean up",
        ),
        ("def f(x):\n    with x as y:\n        return y", "something to clean up"),
        ("def f(x): return locals()", "it reads the frame"),
        ("def f(x):\n    global y\n    y = x\n    return y", "it assigns elsewhere"),
        ("def f(x):\n    import json\n    return json", "an import"),
        ("def f(x):\n    del x\n    return 1", "x is gone"),
        ("def f(*x): return x", "any number of arguments"),
        ("def f(x, *, y=1): return x", "a keyword"),
        ("def f(x, y=1): return x + y", "a default"),
        ("def f(_hg_key): return _hg_key", "a name of the loop's"),
        ("def f(x):\n    _hg_send = x\n    return 1", "a name of the loop's"),
        ("def f(x): return sys._getframe().f_locals", "it reads the frame"),
        ("def f(_hg_send): return 1", "a name of the loop's"),
        (f"def f(x): return {' + '.join(['x'] * 300)}", "too deep to be copied"),
        ("def f(x):\n" + "    x += 1\n" * 1000, "too long to be worth it"),
        (
            "def f(x):\n" + "\n".join(f"{'    ' * n}if x:" for n in range(1, 45)) + " return 1",
            "deep",
        ),
    ],
)
def test_what_a_loop_would_change_is_called(text: str, why: str) -> None:
    assert body(text) is None, why


def test_a_body_knows_its_parameters_and_whether_it_yields() -> None:
    made = body("def f(x, y):\n    'Doc.'\n    z = x\n    yield z, y")
    assert made is not None
    assert (made.parameters, made.yields, made.expression) == (("x", "y"), True, None)
    assert stored_names(made.statements) == {"z"}
    plain = body("def f(x): return x, 1")
    assert plain is not None and isinstance(plain.expression, ast.Tuple)
    nothing = body("def f(x):\n    'Doc.'")
    assert nothing is not None and not always_leaves(nothing.statements)
