/** A path as one word of a command line: of a POSIX shell, or of Windows' for a path of that system. */
export function shellWord(path: string): string {
	if (/^[A-Za-z]:\\|^\\\\/.test(path)) return /[^\w:.\\-]/.test(path) ? `"${path}"` : path;
	return /^[\w@%+=:,./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`;
}
