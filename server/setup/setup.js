// The set-up page's check and copy buttons. The page can be read without.
"use strict";

const patience = 10_000; // for a name that is known only through the proxy, and that a name server may be slow to deny
const say = (id, is, text) => {
	const line = document.getElementById(id);
	line.dataset.is = is;
	line.textContent = text;
};

/** Whether the picture loads, asked for anew each time. */
function loads(url) {
	return new Promise((done) => {
		const picture = new Image();
		const timer = setTimeout(() => done(false), patience);
		const end = (loaded) => () => {
			clearTimeout(timer);
			done(loaded);
		};
		picture.addEventListener("load", end(true));
		picture.addEventListener("error", end(false));
		picture.src = `${url}?${Date.now()}`;
	});
}

const again = document.getElementById("again");
async function check() {
	again.disabled = true;
	const [plain, trusted] = await Promise.all([loads("http://millpond.internal/yes.svg"), loads("https://check.millpond.internal/yes.svg")]);
	const proxied = plain || trusted;
	if (proxied) say("proxied", "yes", "It goes through the proxy.");
	else say("proxied", "no", "It does not go through the proxy yet: set the proxy first.");
	if (trusted) say("trusted", "yes", "It trusts the certificate. It is ready.");
	else if (proxied) say("trusted", "no", "It does not trust the certificate yet.");
	else say("trusted", "asked", "Whether it trusts the certificate shows once the proxy is set.");
	again.disabled = false;
}
document.getElementById("checked").hidden = again.hidden = false;
again.addEventListener("click", check);
// Whoever comes back from the device's settings wants to know.
document.addEventListener("visibilitychange", () => {
	if (document.visibilityState === "visible" && !again.disabled) check();
});
check();

for (const block of document.querySelectorAll("pre")) {
	const text = block.textContent;
	const button = document.createElement("button");
	button.type = "button";
	button.textContent = "Copy";
	button.addEventListener("click", async () => {
		button.textContent = (await copy(text, block.firstChild)) ? "Copied" : "Selected";
		setTimeout(() => {
			button.textContent = "Copy";
		}, 2_000);
	});
	block.append(button);
}

/** Copies text, or selects it where the browser does not allow that. Browsers offer their clipboard to secure pages only, and this is none. */
async function copy(text, shown) {
	try {
		await navigator.clipboard.writeText(text);
		return true;
	} catch {
		getSelection().selectAllChildren(shown);
		return document.execCommand("copy");
	}
}
