import { expect, test } from "vitest";
import { deviceAddresses, isLoopback, localProxy, splitAddress } from "./address";

test.each([
	["127.0.0.1:8080", { host: "127.0.0.1", port: "8080" }],
	["[::1]:8080", { host: "::1", port: "8080" }],
	["[fe80::1%eth0]:1", { host: "fe80::1%eth0", port: "1" }],
])("%s is split", (address, want) => expect(splitAddress(address)).toEqual(want));

test.each([
	["0.0.0.0:8080", "127.0.0.1:8080"],
	["[::]:8080", "127.0.0.1:8080"],
	["[::1]:8080", "[::1]:8080"],
	["192.168.1.10:3128", "192.168.1.10:3128"],
])("on its own machine %s is reached at %s", (address, want) => expect(localProxy(address)).toBe(want));

test.each([
	["localhost", true],
	["millpond.localhost", true],
	["127.0.0.1", true],
	["127.8.0.1", true],
	["[::1]", true],
	["192.168.1.10", false],
	["127.example.com", false],
	["localhost.example.com", false],
])("%s leads only to this machine: %s", (host, want) => expect(isLoopback(host)).toBe(want));

test.each([
	["localhost", [], []],
	["192.168.1.10", [], []],
	["localhost", ["192.168.1.10:8080", "10.0.0.2:8080"], ["192.168.1.10:8080", "10.0.0.2:8080"]],
	["10.0.0.2", ["192.168.1.10:8080", "10.0.0.2:8080"], ["10.0.0.2:8080", "192.168.1.10:8080"]],
	["millpond.example", ["172.17.0.2:3128"], ["millpond.example:3128", "172.17.0.2:3128"]],
	["[2001:db8::7]", ["192.168.1.10:8080"], ["[2001:db8::7]:8080", "192.168.1.10:8080"]],
])("from a page at %s and %j, devices are offered %j", (page, known, want) => expect(deviceAddresses(known, page)).toEqual(want));
