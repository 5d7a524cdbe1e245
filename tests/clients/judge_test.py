"""The judge itself: what it lets pass, and what it does not. Run by `python3 -m unittest`, here."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

JUDGE = pathlib.Path(__file__).with_name("judge.py")
ROBOTS = "0\thttp\tGET\thttp://{}/robots.txt\tpolitely/1\town\n"
ONE, SECRET = "http://shop.example/one.html", "http://shop.example/four.secret"
SLOW = ["http://slow.example/1", "http://slow.example/2"]


def page(url, time=1, way="via"):
    return f"{time}\thttp\tGET\t{url}\tagent\t{way}\n"


def judge(log, *arguments, told="", urls=(ONE, SECRET)):
    with tempfile.TemporaryDirectory() as directory:
        pathlib.Path(directory, "site").mkdir()
        pathlib.Path(directory, "site/log").write_text(log)
        pathlib.Path(directory, "client.log").write_text(told)
        command = [sys.executable, JUDGE, directory, "--how", "fetch", *arguments, "--urls", *urls]
        return subprocess.run(command, capture_output=True, text=True).stderr.strip()


class Judge(unittest.TestCase):
    robots = ROBOTS.format("shop.example")
    slow = ROBOTS.format("slow.example")

    def test_who_fetches_what_is_allowed_and_no_more_works(self):
        self.assertEqual(judge(self.robots + page(ONE)), "works")

    def test_what_is_disallowed_may_not_arrive_however_it_is_spelt(self):
        for url in [SECRET, "http://shop.example/%70rivate/two.html", "http://shop.example/private/"]:
            self.assertEqual(judge(self.robots + page(ONE) + page(url)), f"disallowed, and arrived: {url}")

    def test_what_is_allowed_may_not_be_missing_unless_all_may(self):
        self.assertEqual(judge(self.robots), f"allowed, and did not arrive: {ONE}")
        self.assertEqual(judge("", "--or-nothing"), "fails")

    def test_nothing_may_go_round_even_where_nothing_need_arrive(self):
        self.assertEqual(judge(page(ONE, way="direct"), "--or-nothing"), f"went round the proxy: {ONE}")

    def test_robots_txt_is_read_first(self):
        self.assertEqual(judge(page(ONE)), "robots.txt of shop.example was not read")

    def test_the_gap_is_kept(self):
        first, soon, late = page(SLOW[0], 1), page(SLOW[1], 1.5), page(SLOW[1], 2)
        self.assertEqual(judge(self.slow + first + late, urls=SLOW), "works")
        self.assertEqual(judge(self.slow + first + soon, urls=SLOW), "slow.example was asked 0.500 s after the last, not 1")

    def test_a_refusal_is_no_reason_to_hammer(self):
        refused = f"politely: {ONE}: over max_wait\n"
        self.assertEqual(judge(self.robots, "--refused", told=refused), "gives up")
        self.assertEqual(judge(self.robots + page(ONE), "--refused", "--returns", told=refused), "comes back")
        self.assertEqual(judge(self.robots, "--refused", "--returns", told=refused), f"allowed, and did not arrive: {ONE}")
        self.assertIn("came back", judge(self.robots + page(ONE), "--refused", told=refused))
        self.assertEqual(judge(self.robots, "--refused", told=refused * 6), f"was refused {ONE} 6 times")
        self.assertIn("was not refused", judge(self.robots, "--refused"))
        self.assertEqual(judge(self.robots + page(ONE), "--refused"), "too slow for it")


if __name__ == "__main__":
    unittest.main()
