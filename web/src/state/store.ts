import { useSyncExternalStore } from "react";

/** A value outside React that components can watch. A value is never changed in place: set replaces it. */
export class Store<T> {
	#value: T;
	#listeners = new Set<() => void>();

	constructor(value: T) {
		this.#value = value;
	}

	get = (): T => this.#value;

	set = (value: T): void => {
		if (Object.is(value, this.#value)) return;
		this.#value = value;
		for (const listener of Array.from(this.#listeners)) listener();
	};

	/** Replaces some properties of an object's value. */
	patch(change: Partial<T>): void {
		this.set({ ...this.#value, ...change });
	}

	subscribe = (listener: () => void): (() => void) => {
		this.#listeners.add(listener);
		return () => this.#listeners.delete(listener);
	};
}

/** Watches a store from a component. */
export function useStore<T>(store: Store<T>): T {
	return useSyncExternalStore(store.subscribe, store.get);
}
