from regrow.report import html


def test_foreign_text_is_escaped():
    evil = "<script>&"
    safe = "&lt;script&gt;&amp;"
    for text in (html.paragraph(evil), html.facts([(evil, evil)]), html.card(evil, evil, evil), html.code(evil)):
        assert evil not in text
        assert safe in text
    assert safe in html.section("id", evil)
    assert safe in html.drawing("<svg></svg>", evil)


def test_table_cells_with_and_without_a_class():
    text = html.table([("a", "name"), "b"], [["1", ("2", "soft")]], ["3", ""])
    assert '<th class="name">a</th><th>b</th>' in text
    assert '<td>1</td><td class="soft">2</td>' in text
    assert "<tfoot><tr><td>3</td><td></td></tr></tfoot>" in text
