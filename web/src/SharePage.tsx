import { formatDay, formatTime } from "./format";
import { Inspector } from "./inspector/Inspector";
import styles from "./SharePage.module.css";
import type { SharedSession } from "./state/shared";
import { useStore } from "./state/store";
import { Mark } from "./ui/Mark";
import { Page } from "./ui/Page";

/** The page of a share: one session, to read. */
export function SharePage({ shared }: { shared: SharedSession }) {
	const state = useStore(shared.state);
	const { gone } = useStore(shared.session.state);
	switch (state.is) {
		case "asking":
			return null;
		case "dead":
			return (
				<Page title="There is nothing here">
					<p role="alert">This link has expired, was revoked, or is not complete. Ask whoever sent it for another.</p>
				</Page>
			);
		case "unreachable":
			return (
				<Page title="Millpond cannot be reached">
					<p>The Millpond that this session is shared from does not answer. It may be off; try again later.</p>
					<button type="button" className="primary" onClick={() => location.reload()}>
						Try again
					</button>
				</Page>
			);
		case "open":
			if (gone) {
				return (
					<Page title="This session was deleted">
						<p role="alert">What this link showed is no longer kept.</p>
					</Page>
				);
			}
			return (
				<div className={styles.page}>
					<header className={styles.top}>
						<h1>
							<Mark /> Millpond
						</h1>
						<span className="dim">
							A shared session, to read. The link works until {formatDay(state.grant.expires)} {formatTime(state.grant.expires).slice(0, 5)}.
						</span>
					</header>
					<main className={styles.main}>
						<Inspector api={shared.api} session={shared.session} row={undefined} />
					</main>
				</div>
			);
	}
}
