/** Has the browser save a text that is at hand as a file. */
export function saveText(name: string, text: string): void {
	const address = URL.createObjectURL(new Blob([text], { type: "application/octet-stream" }));
	const link = document.createElement("a");
	link.href = address;
	link.download = name;
	link.click();
	setTimeout(() => URL.revokeObjectURL(address), 60_000); // the browser reads it after the click
}
