import { useSyncExternalStore } from "react";

let now = Date.now();
const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

/** Calls back each second. The timer runs only while somebody listens. */
function subscribe(listener: () => void): () => void {
	listeners.add(listener);
	timer ??= setInterval(() => {
		now = Date.now();
		for (const each of listeners) each();
	}, 1_000);
	return () => {
		listeners.delete(listener);
		if (listeners.size > 0) return;
		clearInterval(timer);
		timer = undefined;
	};
}

/** The time in milliseconds, to the second, for what fades when nothing happens. */
export function useClock(): number {
	return useSyncExternalStore(subscribe, () => now);
}
