"""Names of groups and transactional ids that a page must show as text."""

HOSTILE_NAMES = (
    "<script>window.hit = 1</script>",
    '"><img src=x onerror="window.hit=1">',
    "../..//a b/?c=d&e=f#g",
    "100%25 %2F %",
    "line\nbreak\ttab\x1b[31m",
    "left\u202etfel",
    "'; {{ 7 * 7 }} `code` {0}",
    "l" * 3_000,
)
