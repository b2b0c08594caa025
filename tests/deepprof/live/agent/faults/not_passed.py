"""Places that the course of `every_place` does not come to, each with the reason; checked in both directions."""

from __future__ import annotations

__all__ = ["NOT_PASSED"]

ARRIVED = "everything has arrived before the agent is told to stop; test_agent_stops.py stops one that has more"
NOTHING_LEFT = "no former agent has left a rank; test_roster.py has one that has"
NOTHING_BEFORE = "no rank is replaced while it is sent; test_roster.py has some that are"
SAME_LEVEL = "no process is told to collect less; test_agent_paces.py tells some"
ROOM = "there are descriptors enough; only then does it wait"
NO_SOURCE = "only the sources for PyTorch's windows and for RPD's files come here"
NO_KINETO = "no PyTorch is asked for windows; test_kineto_source.py asks"
NO_RPD = "no file of RPD's tracer is followed; test_rpd_tail.py follows some"
KEPT = "the daemon has lost nothing; test_uplink.py has one that has"
ONCE_MORE = "comes only after an error elsewhere, and the next error would be a second one"

NOT_PASSED = {
    "agent.node_agent:NodeAgent.wind_up: self.clock.sleep(SWEEP_S / 10)": ARRIVED,
    "agent.kineto.kineto_source:KinetoSource.follow: self.take(process, found)": NO_KINETO,
    "agent.kineto.kineto_source:KinetoSource.look: self.follow(process, window)": NO_KINETO,
    "agent.kineto.kineto_source:KinetoSource.run: self.clock.sleep(LOOK_S)": NO_KINETO,
    "agent.kineto.kineto_source:KinetoSource.run: self.look()": NO_KINETO,
    "agent.kineto.kineto_source:KinetoSource.send: send_trace(process.rank, trace, watermark_ns=process.waterma": NO_KINETO,  # noqa: E501 - the code names it so
    "agent.kineto.kineto_source:KinetoSource.take: asyncio.to_thread(read_window, found.path)": NO_KINETO,
    "agent.kineto.kineto_source:KinetoSource.take: self.send(process, trace)": NO_KINETO,
    "agent.ranks:AgentRanks.close_left: called": NOTHING_LEFT,
    "agent.ranks:_send_behind: asyncio.wait([before])": NOTHING_BEFORE,
    "agent.rpd.rpd_source:RpdSource.attempt: self.look()": NO_RPD,
    "agent.rpd.rpd_source:RpdSource.finish: self.clock.sleep(LOOK_S)": NO_RPD,
    "agent.rpd.rpd_source:RpdSource.finish: self.give_all()": NO_RPD,
    "agent.rpd.rpd_source:RpdSource.finish: self.look()": NO_RPD,
    "agent.rpd.rpd_source:RpdSource.follow: self.attempt()": NO_RPD,
    "agent.rpd.rpd_source:RpdSource.follow: self.finish()": NO_RPD,
    "agent.rpd.rpd_source:RpdSource.follow: self.pause(await self.attempt())": NO_RPD,
    "agent.rpd.rpd_source:RpdSource.give: asyncio.to_thread(self.held.take, until_ns, self.growth.text": NO_RPD,
    "agent.rpd.rpd_source:RpdSource.give: send_trace(self.rank, trace, watermark_ns=self.watermark_ns,": NO_RPD,
    "agent.rpd.rpd_source:RpdSource.give_all: self.give(max(self.held.newest_ns.values()) + 1)": NO_RPD,
    "agent.rpd.rpd_source:RpdSource.look: asyncio.to_thread(GrowingDatabase, self.path)": NO_RPD,
    "agent.rpd.rpd_source:RpdSource.look: self.give(horizon_ns if self.growing() else horizon_ns + 1)": NO_RPD,
    "agent.rpd.rpd_source:RpdSource.look: self.read(self.growth)": NO_RPD,
    "agent.rpd.rpd_source:RpdSource.look: self.replace()": NO_RPD,
    "agent.rpd.rpd_source:RpdSource.pause: self.clock.sleep(min(LOOK_S, seconds))": NO_RPD,
    "agent.rpd.rpd_source:RpdSource.read: asyncio.to_thread(growth.read)": NO_RPD,
    "agent.rpd.rpd_source:RpdSource.replace: self.give_all()": NO_RPD,
    "agent.rpd.rpd_source:RpdSource.run: asyncio.shield(following)": NO_RPD,
    "agent.rpd.rpd_source:RpdSource.run: following": NO_RPD,
    "agent.server:_ProcessConnection.heed: self.say(Kind.LEVEL, np.array([self.level], '<u4').tobytes()": SAME_LEVEL,
    "agent.server:AgentServer.run: self.clock.sleep(1.0)": ROOM,
    "agent.traces:send_trace: asyncio.sleep(0)": NO_SOURCE,
    "agent.uplink:Uplink._is_over: sender.wait()": KEPT,
    "agent.uplink:Uplink._send: sender.put(entry)": KEPT,
    "agent.uplink:Uplink.run: self.clock.sleep(self.patience.fail() or 0.0)": ONCE_MORE,
    "agent.uplink:Uplink.run: self.clock.sleep(self.patience.fail() or 0.0) (2)": ONCE_MORE,
}
