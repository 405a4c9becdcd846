"""Texts that break a page, a table or a terminal that takes them for more than texts."""

HOSTILE = [
    "<script>window.hit = 1</script>",
    "</script><script>window.hit = 1</script>",
    "<!-- <script> window.hit = 1",
    '"><img src=x onerror="window.hit = 1">',
    "<svg onload=window.hit=1>",
    "<iframe srcdoc='<script>parent.hit = 1</script>'></iframe>",
    "<style>* { display: none }</style>",
    '<a href="javascript:window.hit=1">press</a>',
    "' onmouseover='window.hit=1",
    "javascript:window.hit=1",
    "{{ 7 * 7 }} {% raw %} ${7 * 7} #{7 * 7}",
    "%{y} %{fullData.name} <extra>more</extra>",
    "<b>bold</b><br>line <sub>low</sub>",
    "&lt;i&gt; &amp; &#60;i&#62;",
    "$\\frac{1}{2}$ \\(x\\)",
    "]]> <![CDATA[ <?php ?> <%= 1 %>",
    "__proto__",
    "=HYPERLINK(1)",
    "\u2028line\u2029separators",
]
"""What breaks pages whose text is not escaped, one way each."""
STEERING = ["\u202egnihton\u202c", "\x00nul", "\x1b[31mred", "\ud83dhalf"]
"""What would turn or break the text around it: spelt out."""
