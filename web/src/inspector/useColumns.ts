import { type RefObject, useEffect, useState } from "react";
import styles from "./BodyView.module.css";

/** How many characters of the body views' font fit beside each other into an element; 0 until it was measured. */
export function useColumns(frame: RefObject<HTMLElement | null>): number {
	const [columns, setColumns] = useState(0);
	useEffect(() => {
		const element = frame.current;
		if (!element) return;
		const probe = document.createElement("span");
		probe.className = styles.measure ?? "";
		probe.textContent = "0".repeat(100);
		element.append(probe);
		const character = probe.getBoundingClientRect().width / 100;
		probe.remove();
		// 16 px before the text, and some for the scrollbar.
		const resized = new ResizeObserver(() => setColumns(Math.max(8, Math.floor((element.clientWidth - 16 - 16) / character))));
		resized.observe(element);
		return () => resized.disconnect();
	}, [frame]);
	return columns;
}
