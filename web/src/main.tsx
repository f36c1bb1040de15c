import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import "./tokens.css";
import "./base.css";
import { App } from "./App";
import { Api } from "./client";
import { takeToken } from "./fragment";
import { Dashboard } from "./state/dashboard";
import { startTheme } from "./state/theme";

startTheme();
const dashboard = new Dashboard(new Api(new URL("api/", new URL(".", location.href))));
dashboard.start(takeToken());
createRoot(document.getElementById("app") as HTMLElement).render(
	<StrictMode>
		<App dashboard={dashboard} />
	</StrictMode>,
);
