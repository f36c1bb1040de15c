import { expect, test } from "vitest";
import { phasesOf } from "./phases";

const at = (fraction: string) => `2026-11-30T14:02:${fraction}Z`;

test("phases follow each other, to the microsecond", () => {
	const { phases, total } = phasesOf({
		duration: 1_500.5,
		timing: {
			started: at("11.999500000"),
			connect: at("11.999600000"),
			connected: at("12.000100000"),
			secured: at("12.010000000"),
			request_sent: at("12.010250000"),
			response_head: at("12.200000000"),
			ended: at("13.500000000"),
		},
	});
	expect(phases.map(({ name, duration }) => [name, Number(duration.toFixed(3))])).toEqual([
		["Connect", 0.5],
		["TLS", 9.9],
		["Send request", 0.25],
		["Wait for response", 189.75],
		["Receive", 1_300],
	]);
	expect(total).toBeCloseTo(1_500.5);
});

test("a connection that was there before is no phase", () => {
	const timing = { started: at("11.0"), request_sent: at("11.001"), response_head: at("11.1") };
	expect(phasesOf({ duration: 200, timing }).phases.map((phase) => phase.name)).toEqual(["Send request", "Wait for response", "Receive"]);
});

test("a connection made before the request began takes nothing from it", () => {
	const timing = { started: at("11.5"), connect: at("11.0"), connected: at("11.1"), request_sent: at("11.6") };
	expect(phasesOf({ duration: 200, timing }).phases.at(-1)).toMatchObject({ name: "Send request", start: 0, duration: 100 });
});

test("where the end is not known, the phases before it are", () => {
	const timing = { started: at("11.0"), request_sent: at("11.001"), response_head: at("11.1") };
	const { phases, total } = phasesOf({ duration: 0, timing });
	expect(phases.map((phase) => phase.name)).toEqual(["Send request", "Wait for response"]);
	expect(total).toBeCloseTo(100);
});

test("what never came has no phase, and a bad time breaks nothing", () => {
	expect(phasesOf({ duration: 0, timing: { started: at("11.0"), connect: at("11.0") } })).toEqual({ phases: [], total: 0.001 });
	expect(phasesOf({ duration: 5, timing: { started: "" } })).toEqual({ phases: [], total: 1 });
});
