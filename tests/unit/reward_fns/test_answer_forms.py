r"""Answers as language models write them: chains, sentences, labels, colours, periods. Each form has its near misses.

A near miss is refused: a chain with a false link, a sentence with two values, a negation, an equation of the problem.
"""

import pytest

from reward_fns.mathematics import algebra
from reward_fns.mathematics import equal as comparison
from reward_fns.mathematics.sentence import stated

ACCEPTED = {
    "e": ["2.718281828...", "2.71828..."],
    r"\sqrt{40}": ["6.324555..."],
    "x=5": ["x is 5", "$x$ is 5"],
    "10": [
        r"\[ f(\sqrt{29}) = 5 + 5 = 10 \]", r"f(\sqrt{29}) = \lfloor\sqrt{29}\rfloor + 5 = 5 + 5 = 10", "f(2) = 10",
        "f^{-1}(3) = 10", "f'(1) = 10", "P(3) + Q(2) = 10", "S = f(2) = 10", "mn = 10", "a - b = 10", "a+b+c=4+6=10",
        r"\theta_1 + \theta_2 = 10", "AB + CD = 10", "The value of $d$ is $7 + 3 = 10$.", r"\( m+n = 10 \)",
    ],
    "113": ["m+n = 113", "m + n = 100 + 13 = 113", "$m+n=113$.", "m+n=113.", "The sum $m+n$ is $113$."],
    "40": [
        "Anna has 40 apples.", "Anna has 40 apples", "She sold 40 clips.", "It costs $40.", r"He earns \$40 per week",
        "There are 40 integers", "The total is 40.", "Thus, the number of ways is 40.", "They were: 40", "x is 40",
        "The remainder is equal to 40", "Anna has exactly 40 apples", "The sum of the smallest and largest is 40",
        "40 more apples", "40 fewer apples", "Anna has 40 more apples.", r"The angle \(ABC\) is \(40^\circ\).",
    ],
    "5": [r"5 \)", r"\( 5", r"5 \]", "$5", "5\\", "5 more apples", r"The value of $f(2)$ is $5$."],
    r"\sqrt{10}": [
        r"The diameter of the circle inscribed in triangle \(ABC\) is \( \sqrt{10} \).", r"Its length is $\sqrt{10}$.",
        r"The diameter is \[ \sqrt{10} \]", r"The radius is \( \sqrt{10} \) cm.", r"It is \sqrt{10}",
    ],
    r"\frac{\sqrt{39}}{2}": [r"\frac{\sqrt{39}}{2} \)", r"\frac{\sqrt{39}}{2}\]", r"\frac{\sqrt{39}}{2}$"],
    "2y": [r"The sum of the smallest and largest integers is \( 2y \)."],
    "(3,4)": ["The point is (3, 4).", r"The center is \((3,4)\)"],
    r"(-\infty,0)\cup(0,\infty)": [
        r"\mathbb{R}\setminus\{0\}", r"\mathbb R \backslash \{0\}", r"\mathbb{R} - \{0\}", r"x \ne 0", r"0 \neq x",
        r"x \in \mathbb{R}\setminus\{0\}", r"(-\infty,\infty)\setminus\{0\}",
    ],
    r"\mathbb{R}\setminus\{0\}": [r"(0,\infty)\cup(-\infty,0)", r"\mathbb{R} \setminus \{ 0 \}", r"ℝ - \{0\}"],
    r"(-\infty,-\sqrt2)\cup(-\sqrt2,\sqrt2)\cup(\sqrt2,\infty)": [
        r"\mathbb{R}\setminus\{\sqrt2,-\sqrt2\}", r"\mathbb{R}\setminus\{\pm\sqrt2\}",
    ],
    "(-2,2)": ["|x|<2", r"\left|x\right| < 2", r"2 > |x|", r"\lvert x \rvert < 2"],
    "|x|<2": ["(-2,2)", "-2<x<2", "2>x>-2", "|x| < 2"],
    "[-2,2]": [r"|x| \le 2", r"2 \geq |x|"],
    r"(-\infty,-\frac12]\cup[\frac12,\infty)": [r"|x| \ge \frac12"],
    "17": [r"\color{blue}{17}", r"{\color{blue}17}", r"{\color{red} 17}", r"\textcolor{blue}{17}", r"\color{red}17"],
    r"\frac12": [r"\color{blue}{\frac12}", r"\textcolor{red}{\dfrac{1}{2}}"],
    r"\frac{10}{3}": [
        r"3.\bar{3}", r"3.\bar3", r"3.\overline{3}", r"3.\dot{3}", "3.333…", r"3.333\ldots", "3.333...", r"3.333\dots",
    ],
    r"\frac{1}{6}": [r"0.1\bar{6}", "0.1666…", "0.16666...", r".1\overline{6}"],
    r"\frac{1}{7}": [r"0.\overline{142857}", "0.142857142857…"],
    r"\frac{4}{33}": ["0.1212...", r"0.\bar{12}"],
    "3": ["3.000…", r"2.\bar{9}", "2.999999..."],
}  # fmt: skip

REFUSED = {
    "3": [
        "1=2=3", "x=4=3", "f(2)=4=3", "m+n=4=3", "f(2) = 1 + 1 = 3", "2+2=3", "4=3", r"\sqrt{4}=3", "2x=3", "x+1=3",
        "x+y=3", "x-y=3", "xy=3", "-a=3", "2(a+b)=3", "a^2=3", r"\pi r=3", "e+i=3", "m+n=3=x+1", "m+n=3, m+n=4",
        "m+n<3", r"m+n\ne3", "x(x+1)=3", "f(x)+1=3", "m+n=3 or 4", "m+n=3+0", "f(2)=3 or f(2)=4", "m+n+6=3",
        r"\sin a=3", "m+n=3=6", "m+n=6=3", "m+n=6", "3=m+n", "m+n==", "m+n=", r"m+n=\text{three or } 3", "2.333…",
        "3.333…",
    ],
    "5": [
        "It is 5 or 6.", "It is not 5.", "It isn't 5.", "It is 5 and 6", "Either it is 6 or it is 5.",
        "If it is 6, it is 5", "It is $6$ or it is $5$", r"It is \(6\), it is \(5\)", "The answer is 6. It is 5.",
        "six is 5", "It is six, or it is 5", "Another answer is 6 and it is 5", "Five or six is 5", "It is about 5",
        "It is at least 5", "It is less than 5", "It is twice 5", "Half of it is 5", "Twice the answer is 5",
        "The square of the answer is 5", "It is 5 dozen", "It is 5 or more", "It may be 6, though it is 5",
        "Maybe it is 5", "Anna has 5 apples and 6 pears", "Anna has 5 apples and Bob has 6",
        "Anna has 5 apples or six", "Anna has 5 more than Bob", "5 more than x", "5 more or less", "5 or more apples",
        "5 more", "5 fewer than six", "5 less six", "more apples 5", "Anna has 6 apples, 5 pears",
        "There are 5 to 6 integers", "Anna has 5, 6 apples", "Anna has 5 6 apples", "Anna has 5 apples, not 6",
        "Anna has 5 apples but Bob has 6 pears", "Anna does not have 5 apples", "Anna never has 5 apples",
        "Anna has -5 apples", "Anna has 5% of it", "Anna has 5 hundred apples", r"The value of \(6\) is \(5\)",
        r"The values of \(x=6\) are \(5\)", r"\(6\) is \(5\)", "$6$ is $5$", "6 is 5", "is 5 is 6", "x is 6 is 5",
        r"The solutions $6, 7$ are $5$", r"It is \text{not } 5", r"It is \phantom{6} 5", "The answer is 6 is 5",
        "5 is wrong", "It is 5 is wrong", "It is 5? It is 6", "It is 6; it is 5", "It is 6: it is 5", "(6) is 5",
        r"5\color{white}{6}", r"5\color{white}{\text{ or }6}", r"5 \textcolor{red}{or 6}", r"\color{5}{6}",
        r"\color{blue}{6}", r"5 \) or \( 6", r"5 \) 6", r"\( 5 \) \( 6 \)", "5\\\\6", "5\\6", "5.555…", "4.999",
        "4.99…", r"4.\bar{8}", "5, …", "5, 6, …", "5 …6", "5.0…6",
    ],
    r"\sqrt{10}": [
        r"The diameter is \( \sqrt{10} \) or \( \sqrt{11} \).", r"The diameters are \( \sqrt{10} \) and \( 3 \).",
        r"The diameter is not \( \sqrt{10} \).", r"The diameter \( 2\sqrt{10} \) is \( \sqrt{10} \).",
        r"The diameter is \( \sqrt{10} = 3 \).", r"The radius of \( AB = 3 \) is \( \sqrt{10} \).",
    ],
    r"(-\infty,0)\cup(0,\infty)": [
        r"\mathbb{R}\setminus\{1\}", r"\mathbb{R}\setminus\{0,1\}", r"\mathbb{R}\setminus[0,1]",
        r"\mathbb{Z}\setminus\{0\}", r"x \ne 1", r"\mathbb{R}", r"\mathbb{R}\setminus\{a\}",
        r"\{0\}\setminus\mathbb{R}", r"\mathbb{R}\setminus\{i\}", r"\mathbb{R}\setminus\{\}",
        r"\mathbb{R}\setminus\{0\}\setminus\{1\}", r"x = 0",
    ],
    "(-2,2)": [
        r"|x| \le 2", "|x|<3", "|x|>2", "|x|<-2", "|x|=2", "|z|<2", "|x-1|<2", "|x|<2<3", "|x||y|<2", "|x|<x",
        "|x| < 1 + 1",
    ],
    r"(-\infty,-2)\cup(2,\infty)": [r"|x| \ge 2", "|x|<2", r"|x| \ne 2"],
    r"\frac{10}{3}": [
        "3.33…", "3.3…", "3.333", "3.3333", r"3.\bar{4}", "3.334…", r"3.3\bar{0}", "3.3334…", "3.14159…", "33.333…",
    ],
    r"\pi": ["3.14159…", "3.141592653589793…", "3.14…"],
    "x+y=5": ["5", "m+n=5", "x+y=5=6"],
    "x=5": ["f(2)=5", "m+n=5", "y=5", "y is 5", r"\( y \) is 5"],
}  # fmt: skip


def equal(gold: str, answer: str) -> bool | None:
    """As `math_answer.judge` compares, with algebra in this process."""
    return comparison.equal(stated(gold), stated(answer), decide=algebra.same)


def pairs(table: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(gold, answer) for gold, answers in table.items() for answer in answers]


@pytest.mark.parametrize(("gold", "answer"), pairs(ACCEPTED))
def test_read_as_right(gold: str, answer: str) -> None:
    assert equal(gold, answer)


@pytest.mark.parametrize(("gold", "answer"), pairs(REFUSED))
def test_refused(gold: str, answer: str) -> None:
    assert not equal(gold, answer)


@pytest.mark.parametrize("gold", ["5", "x^2", "(1,2)", r"\{1,2\}", "yes", "B", "1 or 2"])
@pytest.mark.parametrize("answer", ["or", "and", r"\text{or}", "; and :", r"\lor", "+ or", r"It is \text{or}"])
def test_a_list_of_nothing_is_no_answer(gold: str, answer: str) -> None:
    assert not equal(gold, answer)


def test_units_after_a_sentence_are_compared() -> None:
    assert equal("40 apples", "Anna has 40 apples.")
    assert not equal("40 apples", "Anna has 40 pears.")
    assert not equal("40 cm", "Its length is 40 m.")


def test_another_order_and_spelling_of_an_equation_is_still_compared_as_one() -> None:
    assert equal("m+n=5", "n+m=5") and equal("x+y=5", "y+x=5") and not equal("m+n=5", "m-n=5")
