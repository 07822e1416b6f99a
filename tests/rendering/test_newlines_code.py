"""Newline modes of code whose statements are words, and of prose with the same words."""

from __future__ import annotations

import pytest

from seer.rendering import STYLES
from seer.rendering.newlines import decide_newline

PAPER = STYLES["paper"]
WORDY_CODE = {
    "Fortran 90": (
        "program bridge\n"
        "  implicit none\n"
        "  integer :: i, n\n"
        "  real, dimension(10) :: length\n"
        "  n = 10\n"
        "  do i = 1, n\n"
        "    length(i) = i * 2.5\n"
        "    call report(i, length(i))\n"
        "  end do\n"
        "  if (n .gt. 5) then\n"
        "    print *, 'long bridge'\n"
        "  else\n"
        "    write(*,*) 'short bridge'\n"
        "  end if\n"
        "contains\n"
        "  subroutine report(k, x)\n"
        "    integer, intent(in) :: k\n"
        "    real, intent(in) :: x\n"
        "    write(*,'(i3,f8.2)') k, x\n"
        "  end subroutine report\n"
        "end program bridge\n"
    ),
    "Fortran 77": (
        "C     COMPUTE THE LENGTH OF A SPAN\n"
        "C     ALL VALUES ARE IN METRES\n"
        "      SUBROUTINE SPAN(N, X, Y)\n"
        "      IMPLICIT NONE\n"
        "      INTEGER N, I\n"
        "      DOUBLE PRECISION X(*), Y\n"
        "C     LOOP OVER ALL PARTS\n"
        "      DO 10 I = 1, N\n"
        "      IF (X(I) .LT. 0.0) GOTO 20\n"
        "      Y = Y + X(I)\n"
        "   10 CONTINUE\n"
        "      RETURN\n"
        "   20 CALL XERROR('NEGATIVE LENGTH', 15)\n"
        "      STOP\n"
        "      END\n"
    ),
    "SQL query": (
        "SELECT p.name,\n"
        "       p.age,\n"
        "       count(*) AS visits\n"
        "FROM people p\n"
        "LEFT JOIN visits v ON v.person_id\n"
        "WHERE p.active\n"
        "  AND p.town IN ('Rome', 'Oslo')\n"
        "GROUP BY p.name, p.age\n"
        "HAVING count(*) > 3\n"
        "ORDER BY visits DESC\n"
        "LIMIT 10\n"
    ),
    "SQL tables": (
        "CREATE TABLE people (\n"
        "    id INTEGER PRIMARY KEY,\n"
        "    name VARCHAR(80) NOT NULL,\n"
        "    town TEXT,\n"
        "    born DATE\n"
        ");\n"
        "INSERT INTO people (id, name, town)\n"
        "VALUES (1, 'Anna', 'Rome'),\n"
        "       (2, 'Ben', 'Oslo');\n"
        "ALTER TABLE people ADD COLUMN phone TEXT;\n"
        "DROP TABLE visits;\n"
    ),
    "SQL in lower case": (
        "select name, town\n"
        "from people\n"
        "inner join visits using (person_id)\n"
        "where town is not null\n"
        "order by name\n"
        "limit 5\n"
    ),
    "flat YAML": (
        "name: bridge\n"
        "version: 1.2\n"
        "language: python\n"
        "python: 3.11\n"
        "license: MIT\n"
        "author: anna\n"
        "timeout: 30\n"
        "debug: false\n"
        "log_level: info\n"
        "database_url: postgres\n"
    ),
    "YAML with capitals": (
        "AWSTemplateFormatVersion: 2010-09-09\n"
        "Description: A small bridge\n"
        "Resources:\n"
        "  Bucket:\n"
        "    Type: Storage\n"
        "    Name: bridge-data\n"
    ),
    "Perl": (
        "use strict;\n"
        "use warnings;\n"
        "my $name = shift;\n"
        "my @parts = split /,/, $name;\n"
        "foreach my $part (@parts) {\n"
        "    next unless $part;\n"
        '    print "part: $part\\n";\n'
        "    push @found, $part if $part =~ /arch/;\n"
        "}\n"
        "sub total {\n"
        "    my ($x, $y) = @_;\n"
        "    return $x + $y;\n"
        "}\n"
        "1;\n"
    ),
    "Perl with comments": (
        "# read all parts of the bridge\n"
        "# and print the long ones\n"
        "open my $in, '<', $file or die \"cannot open $file: $!\";\n"
        "while (<$in>) {\n"
        "    chomp;\n"
        "    next if /^#/;\n"
        "    my ($name, $length) = split;\n"
        '    print "$name\\n" if $length > 5;\n'
        "}\n"
        "close $in;\n"
    ),
    "BASIC": ('10 PRINT "HELLO"\n20 INPUT A\n30 IF A > 5 THEN GOTO 10\n40 LET B = A * 2\n50 PRINT B\n60 END\n'),
}
"""Code whose statements are words, with few brackets and operators."""
WORDY_PROSE = {
    "verse with words of SQL": (
        "From the river to the sea we go,\n"
        "where the old mill is standing still,\n"
        "and the wind in the reeds is low;\n"
        "select the path beyond the hill.\n"
        "\n"
        "Call me when the evening falls,\n"
        "return to us before the night,\n"
        "use the gate along the walls,\n"
        "and leave the candle in its light.\n"
    )
    * 4,
    "chat in lower case": ("anna: are you coming?\nben: yes, around 8\nanna: bring the map\nben: will do\n") * 8,
    "play": (
        "HAMLET: To be, or not to be.\n"
        "OPHELIA: Good my lord,\n"
        "How does your honour for this many a day?\n"
        "HAMLET: I humbly thank you; well, well, well.\n"
    )
    * 5,
    "mail with a long head": (
        "From: anna@example.org\n"
        "To: ben@example.org\n"
        "Subject: Bridge\n"
        "Date: Tue\n"
        "\n"
        "Dear Ben,\n"
        "the bridge is repaired.\n"
        "Where are you now?\n"
        "With best wishes,\n"
        "Anna\n"
    )
    * 3,
    "sentences with words of Fortran": (
        "Use two eggs and a cup of milk.\nStop when it is golden.\nCall it a day.\nPrint the recipe for a friend.\n"
    )
    * 6,
    "notice in capitals": (
        "THE COMMITTEE MET ON TUESDAY AND AGREED\n"
        "THAT THE BRIDGE HAS TO BE REPAIRED\n"
        "BEFORE WINTER. CALL THE OFFICE OR\n"
        "RETURN THE FORM TO THE FRONT DESK\n"
        "FROM MONDAY ON. WHERE NO FORM IS AT HAND\n"
        "DO NOT STOP TO ASK\n"
    )
    * 4,
    "prices in dollars": (
        "The map costs $5 today.\nWe paid $12 for rope,\nand $3 more for the lamp.\nMy aunt paid the rest.\n"
    )
    * 6,
    "formulas in LaTeX": (
        "the length $x_1$ of a span\n"
        "is smaller than $y_{max}$ and\n"
        "larger than $z_min + 3$, so that\n"
        "$abc$ holds for $n$ spans.\n"
    )
    * 4,
    "glossary": (
        "abbot: the head of an abbey\nbarge: a flat boat\ncanal: a man-made river\ndyke: a wall against water\n"
    ),
    "questions and answers": ("question: where is it?\nanswer: in Rome\nquestion: who built it?\nanswer: a monk\n") * 5,
    "asides and numbered verse": (
        "Call me (maybe) when the evening falls,\n"
        "1 for the money\n"
        "2 for the show\n"
        "my (own) opinion is that @anna left\n"
        "      real men do not return\n"
        "read (2) and (3) again\n"
        "select apples from the basket\n"
        "values (and morals) matter\n"
    )
    * 4,
}
"""Short lines of prose with the same words and signs."""


@pytest.mark.parametrize("name", WORDY_CODE)
def test_decide_newline_breaks_lines_of_code_made_of_words(name):
    for text in (WORDY_CODE[name], WORDY_CODE[name].replace("\n", "\r\n"), "---\n".join([WORDY_CODE[name]] * 3)):
        decision = decide_newline(text, PAPER)
        assert decision.newline == "break" and "code or tables" in decision.reason, decision


@pytest.mark.parametrize("name", WORDY_PROSE)
def test_decide_newline_marks_prose_with_words_of_code(name):
    decision = decide_newline(WORDY_PROSE[name], PAPER)
    assert decision.newline == "mark", decision


def test_decide_newline_marks_names_and_values_inside_prose():
    line = "The committee met on Tuesday and agreed, after some debate, that the bridge"
    wrapped = "\n\n".join("\n".join([line] * 8) for _ in range(8))
    assert decide_newline(wrapped + "\n\n" + WORDY_CODE["flat YAML"], PAPER).newline == "mark"
