"""The page of a job on real Spark, under real back pressure, in a real browser."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from headgate.common import JobClient, JobStatus
from headgate.datastream import StreamExecutionEnvironment
from headgate.datastream.connectors import DataGeneratorSource
from tests.spark.cluster import until

pytest.importorskip("starlette")
pytest.importorskip("playwright")

from playwright.sync_api import expect

from headgate.observe.web.server import close_page_server, page_link
from tests.observe.web.browser import chromium, visiting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG_MS = 60_000


def look_up(order: int) -> int:
    time.sleep(0.002)  # a slow service
    return order


@pytest.fixture
def client(spark: "SparkSession") -> Iterator[JobClient]:
    close_page_server()  # of an earlier test, with other settings
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    env.get_configuration().set_string("rest.enabled", "true")
    orders = env.from_source(DataGeneratorSource(abs, None), None, "orders")
    looked_up = orders.rebalance().map(look_up).name("look-up")
    looked_up.key_by(lambda order: order % 7).map(lambda order: order).name("totals").add_sink(
        lambda order: None
    )
    client = env.execute_async("orders")
    try:
        assert until(lambda: client.get_job_status().result() is JobStatus.RUNNING, 60)
        yield client
    finally:
        client.cancel()
        close_page_server()


def test_real_back_pressure_has_the_right_colours_and_cause(client: JobClient) -> None:
    link = page_link(client.get_job_id())
    base, _, fragment = link.partition("/#")
    with chromium() as browser, visiting(browser, base) as visitor:
        page = visitor.open(f"#{fragment}")
        source, slow, end = (page.locator(f"[data-vertex='{vertex}']") for vertex in range(3))
        expect(slow).to_have_attribute("data-activity", "busy", timeout=LONG_MS)
        expect(source).to_have_attribute("data-activity", "back-pressured", timeout=LONG_MS)
        expect(end).to_have_attribute("data-activity", "idle", timeout=LONG_MS)
        expect(page.locator(".why-head .badge")).to_have_text("Waits", timeout=LONG_MS)
        expect(page.locator(".why .summary")).to_contain_text("'look-up' limits the job")
        page.get_by_role("button", name="Full answer").click()
        line = page.locator(".why .full code").first
        expect(line).to_contain_text("look_up", timeout=LONG_MS)
        slow.click()
        page.get_by_role("link", name="Waiting records").click()
        page.get_by_role("button", name="Look", exact=True).click()
        expect(page.locator("code.record").first).to_be_visible(timeout=LONG_MS)
        page.get_by_role("button", name="Cancel…").click()
        page.get_by_role("button", name="Cancel the job").click()
        expect(page.locator(".notice").first).to_contain_text("Canceled at", timeout=LONG_MS)
        assert client.get_job_status().result() is JobStatus.CANCELED
        visitor.behaved()
