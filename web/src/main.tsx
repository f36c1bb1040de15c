import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import "./tokens.css";
import "./base.css";
import { App } from "./App";
import { Api } from "./client";
import { takeToken } from "./fragment";
import { Dashboard } from "./state/dashboard";
import { keepPlace, placeIn } from "./state/place";
import { startTheme } from "./state/theme";

startTheme();
const dashboard = new Dashboard(new Api(new URL("api/", new URL(".", location.href))));
dashboard.start(takeToken());
dashboard.goTo(placeIn(location.hash));
keepPlace(dashboard);
// A link or a bookmark that is opened in this page does not load it again.
window.addEventListener("hashchange", () => {
	const token = takeToken();
	if (token !== "" && dashboard.access.get() !== "given") dashboard.start(token);
	dashboard.goTo(placeIn(location.hash));
});
createRoot(document.getElementById("app") as HTMLElement).render(
	<StrictMode>
		<App dashboard={dashboard} />
	</StrictMode>,
);
