import { expect, test } from "vitest";
import { phasesOf } from "./phases";

const at = (fraction: string) => `2026-11-30T14:02:${fraction}Z`;

const round = (value: number) => Number(value.toFixed(3));

/** Phases as "name start+duration", to the microsecond. */
function told(timed: Parameters<typeof phasesOf>[0]): string[] {
	return phasesOf(timed).phases.map(({ name, start, duration }) => `${name} ${round(start)}+${round(duration)}`);
}

test("phases follow each other, to the microsecond", () => {
	const timed = {
		duration: 1_500.5,
		timing: {
			started: at("11.999500000"),
			connect: at("11.999600000"),
			resolved: at("11.999850000"),
			connected: at("12.000100000"),
			secured: at("12.010000000"),
			request_sent: at("12.010250000"),
			first_byte: at("12.199000000"),
			response_head: at("12.200000000"),
			ended: at("13.500000000"),
		},
	};
	expect(told(timed)).toEqual([
		"Look up name 0.1+0.25",
		"Connect 0.35+0.25",
		"TLS with upstream 0.6+9.9",
		"Send request 10.5+0.25",
		"Wait for response 10.75+188.75",
		"Receive 199.5+1301",
	]);
	expect(phasesOf(timed).total).toBeCloseTo(1_500.5);
});

test("an address is not looked up, and over HTTP/2 the head is the first byte", () => {
	const timing = { started: at("11.0"), connect: at("11.0"), connected: at("11.001"), request_sent: at("11.002"), response_head: at("11.1") };
	expect(told({ duration: 200, timing })).toEqual(["Connect 0+1", "Send request 1+1", "Wait for response 2+98", "Receive 100+100"]);
});

test("a connection that was there before is no phase", () => {
	const timing = { started: at("11.0"), request_sent: at("11.001"), response_head: at("11.1") };
	expect(told({ duration: 200, timing })).toEqual(["Send request 0+1", "Wait for response 1+99", "Receive 100+100"]);
});

test("a connection made ahead of the request stands before it, without the time it was idle", () => {
	const timing = {
		connect: at("01.000"),
		resolved: at("01.002"),
		connected: at("01.005"),
		client_hello: at("01.006"),
		secured: at("01.016"),
		client_secured: at("01.020"),
		started: at("31.020"),
		request_sent: at("31.021"),
		first_byte: at("31.121"),
		response_head: at("31.121"),
	};
	expect(told({ duration: 200, timing })).toEqual([
		"Look up name 0+2",
		"Connect 2+3",
		"TLS with upstream 6+10",
		"TLS with client 16+4",
		"Send request 20+1",
		"Wait for response 21+100",
		"Receive 121+99",
	]);
	expect(phasesOf({ duration: 200, timing })).toMatchObject({ begin: 20, idle: 30_000, total: 220 });
});

test("where the end is not known, the phases before it are", () => {
	const timing = { started: at("11.0"), request_sent: at("11.001"), response_head: at("11.1") };
	const { phases, total } = phasesOf({ duration: 0, timing });
	expect(phases.map((phase) => phase.name)).toEqual(["Send request", "Wait for response"]);
	expect(total).toBeCloseTo(100);
});

test("a response that came before the request was sent has no wait", () => {
	const timing = { started: at("11.0"), first_byte: at("11.1"), response_head: at("11.1"), request_sent: at("11.5") };
	expect(told({ duration: 600, timing })).toEqual(["Send request 0+500", "Receive 100+500"]);
});

test("what never came has no phase, and a bad time breaks nothing", () => {
	expect(phasesOf({ duration: 0, timing: { started: at("11.0"), connect: at("11.0") } })).toEqual({ phases: [], total: 0.001, begin: 0, idle: 0 });
	expect(phasesOf({ duration: 5, timing: { started: "" } })).toEqual({ phases: [], total: 1, begin: 0, idle: 0 });
});
