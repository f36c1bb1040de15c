import { useState } from "react";
import type { Outbound } from "./outbound";

/** Why what was last tried in one place did not work, to be said there and nowhere else; and a function that tries. It reports whether that worked. */
export function useAttempt(outbound: Outbound): [problem: string, attempt: (work: () => Promise<boolean>) => Promise<boolean>] {
	const [problem, setProblem] = useState("");
	const attempt = async (work: () => Promise<boolean>) => {
		const worked = await work();
		setProblem(worked ? "" : outbound.state.get().problem);
		return worked;
	};
	return [problem, attempt];
}
