import { correction, generate } from "lean-qr";
import { toSvgPath } from "lean-qr/extras/svg";
import { useMemo } from "react";
import styles from "./QrCode.module.css";

/** What a camera needs around a code, in its squares. ISO/IEC 18004. */
const quiet = 4;

/** A link as a QR code. It is dark on light in both themes: not every camera reads the reverse. */
export function QrCode({ link }: { link: string }) {
	const { path, side } = useMemo(() => {
		const code = generate(link, { minCorrectionLevel: correction.M });
		return { path: toSvgPath(code), side: code.size };
	}, [link]);
	const whole = side + 2 * quiet;
	return (
		<svg className={styles.code} viewBox={`${-quiet} ${-quiet} ${whole} ${whole}`} role="img" aria-label={`QR code of ${link}`}>
			<path d={path} />
		</svg>
	);
}
