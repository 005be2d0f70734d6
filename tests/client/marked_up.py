"""Answers as chat front ends keep them: each with its markup, and the sentences that a reader must find in it afterwards."""

import base64

PICTURE = base64.b64encode(bytes(range(256)) * 24).decode()

THOUGHT = (
    "The user wants to know how the tides work. I should keep it short, mention the moon first, then the sun, then give the "
    "times for the harbour that they asked about earlier. Let me check the numbers: high water is at 06:12 and 18:37, low water "
    "at 00:20 and 12:25. The range is 3.4 m. I must not forget that it is daylight saving time there. "
)

WEATHER_CARD = """<tool_card name="weather" version="3">
{"station": "harbour", "readings": [{"t": "06:00", "temp": 11.2, "wind": 4}, {"t": "12:00", "temp": 14.9, "wind": 6},
 {"t": "18:00", "temp": 13.1, "wind": 5}], "attribution": "none", "layout": {"columns": 3, "theme": "light", "icons": true}}
</tool_card>"""

ARTIFACT = '<antArtifact identifier="timetable" type="text/html" title="Timetable">\n<table>\n' + "".join(
    f"<tr><td>Boat {n}</td><td>{6 + n:02}:15</td><td>{6 + n:02}:55</td><td>Pier {n % 3 + 1}</td></tr>\n" for n in range(14)
) + "</table>\n</antArtifact>"

ANSWERS = [
    (
        f"<think>\n{THOUGHT * 2}\n</think>\n\nTides come from the pull of the moon【4:0†tides.pdf】. The sun adds to it【4:1†tides.pdf】【4:7†sun.pdf】.\n\n"
        "At the harbour the range is 3.4 m today [2][5].",
        ["Tides come from the pull of the moon.", "The sun adds to it.", "At the harbour the range is 3.4 m today."],
    ),
    (
        f"Here is the timetable.\n\n{ARTIFACT}\n\nThe last boat leaves at 19:15.",
        ["Here is the timetable.", "The last boat leaves at 19:15."],
    ),
    (
        f"{WEATHER_CARD}\n\nIt will be <cite index=\"1-3\">mild, with a light wind</cite>[1]. Take a coat for the evening[1, 3].",
        ["It will be mild, with a light wind.", "Take a coat for the evening."],
    ),
    (
        f"<thinking>{THOUGHT}</thinking>![the pier at low water](data:image/png;base64,{PICTURE})\n\nThis is the pier at low water. "
        "The steps on the left are dry then.",
        ["the pier at low water", "This is the pier at low water.", "The steps on the left are dry then."],
    ),
    (
        f"<reasoning>\n{THOUGHT}\n</reasoning>\nUse the command below.\n\n```sh\ngrep '<think>' notes.txt | head -n 3  # [1]\n```\n\n"
        "It prints the first three lines[^1]. Nothing is changed.\n\n[^1]: Manual of grep, section 2, as fetched from the archive on Monday "
        "together with the examples that belong to it.\n",
        ["Use the command below.", "grep '<think>' notes.txt | head -n 3  # [1]", "It prints the first three lines.", "Nothing is changed."],
    ),
    (
        ":::card booking\n" + "".join(f'{{"leg": {n}, "from": "A{n}", "to": "B{n}", "seat": "{n}C", "fare": {90 + n}}}\n' for n in range(12))
        + ":::\n\nYour trip is booked [citation:1]. The fare is 94 EUR [citation:2].",
        ["Your trip is booked.", "The fare is 94 EUR."],
    ),
    (
        "The museum opens at ten \ue200cite\ue202turn0search4\ue202turn0search9\ue201. Entry is free on Sundays "
        "\ue200cite\ue202turn0search4\ue201.\n\n<sources>\n"
        + "".join(f'<source id="{n}" url="https://example.org/museum/page-{n}">Opening hours and prices, page {n}</source>\n' for n in range(9))
        + "</sources>",
        ["The museum opens at ten.", "Entry is free on Sundays."],
    ),
    (
        f'<widget kind="chart">{{"series": [{", ".join(str(n * 37 % 101) for n in range(160))}]}}</widget>\nSales rose in spring. They fell after.'
        f'\n<img alt="" src="data:image/jpeg;base64,{PICTURE[:2000]}" width="640">',
        ["Sales rose in spring.", "They fell after."],
    ),
]
