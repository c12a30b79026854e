"""Names of groups and transactional ids that a page must show as text."""

HOSTILE_NAMES = (
    '<script>window.hit = 1</script>"><img src=x onerror="window.hit=1">'
    "'; {{ 7 * 7 }} `code` {0}line\nbreak\ttab\x1b[31m left\u202etfel 100%25 %2F %",
    "../..//a b/?c=d&e=f#g",
    "l" * 3_000,
)
