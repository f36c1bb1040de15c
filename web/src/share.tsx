import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import "./tokens.css";
import "./base.css";
import { tokenIn } from "./fragment";
import { SharePage } from "./SharePage";
import { SharedSession } from "./state/shared";
import { startTheme } from "./state/theme";

startTheme();
// The page is at /s/{id}. The token stays in the address, so that the link works when the page is loaded again or kept.
const id = location.pathname.split("/").at(-1) ?? "";
const shared = new SharedSession(new URL("../api/", location.href), id);
shared.start(tokenIn(location.hash));
createRoot(document.getElementById("app") as HTMLElement).render(
	<StrictMode>
		<SharePage shared={shared} />
	</StrictMode>,
);
