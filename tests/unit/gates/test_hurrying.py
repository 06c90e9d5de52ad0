"""Links that are down are dialled anew when another one comes up, at once but not again and again."""

import asyncio

from potluck.gates.hurrying import Hurrying


class FakeLink:
    def __init__(self, *, is_up=False):
        self.is_up = is_up
        self.num_hurried = 0

    def hurry(self):
        self.num_hurried += 1


def test_a_link_that_comes_up_hurries_the_others_at_once_and_a_crowd_of_them_a_few_times():
    links = {f"m{number}": FakeLink() for number in range(20)}

    async def many_come():
        hurrying = Hurrying(links)
        hurrying.link_is_up()
        assert links["m0"].num_hurried == 1
        for _ in range(100):
            hurrying.link_is_up()
            await asyncio.sleep(0)  # a busy computer takes its time for more
        assert links["m0"].num_hurried == 1
        await asyncio.sleep(1.1)
        assert links["m0"].num_hurried == 2, (
            "the last of them may have been the one that shows that the network is back"
        )
        await asyncio.sleep(1.1)
        assert links["m0"].num_hurried == 2
        hurrying.close()

    asyncio.run(many_come())


def test_with_many_links_that_are_down_the_pause_is_longer():
    links = {f"m{number}": FakeLink() for number in range(200)}

    async def two_come():
        hurrying = Hurrying(links)
        hurrying.link_is_up()
        hurrying.link_is_up()
        await asyncio.sleep(1.5)
        assert links["m0"].num_hurried == 1
        hurrying.close()

    asyncio.run(two_come())
