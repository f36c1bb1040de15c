/** The mark of a pinned session. Where nothing beside it says so, it has a label. */
export function Pin({ label }: { label?: string }) {
	return (
		<svg width="10" height="10" viewBox="0 0 10 10" fill="currentColor" {...(label ? { role: "img", "aria-label": label } : { "aria-hidden": true })}>
			<path d="M3 0h4v1L6.4 1.6V4L8 5.4v.8H5.4V9L5 10l-.4-1V6.2H2v-.8L3.6 4V1.6L3 1z" />
		</svg>
	);
}
