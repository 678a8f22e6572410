"""A judge of the attack suite with the stand-in of e2b's service inside it, so that the meter sees the programs."""

import os

from reward_fns.sandbox.attacks import worker
from tests.sandbox.e2b_stand_in import StandIn, serve

if __name__ == "__main__":
    with serve(StandIn()) as url:
        os.environ |= {"E2B_API_URL": url, "E2B_SANDBOX_URL": url, "E2B_API_KEY": "e2b_test"}
        os.environ |= {"E2B_HTTP_VERSION": "1.1", "E2B_CONNECTION_RETRIES": "0"}
        worker.main("e2b")
        from reward_fns.sandbox import e2b

        e2b._end_all()
