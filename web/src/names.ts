// Names from traces are text, whatever is in them: what cannot be seen or turns the text around is shown by a sign.

const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const LONGEST = 1_000; // characters of a name in full
const labels = new Map<string, string>();

/** Returns `name` with its invisible characters shown and, if it is too long, its middle left out. */
export function showName(name: string, longest = LONGEST): string {
  const short = name.length <= longest ? name : cutMiddle(name, longest);
  return short.replace(INVISIBLE, sign);
}

/** Returns `name` in at most `longest` characters: its beginning, `…`, its end. */
export function cutMiddle(name: string, longest: number): string {
  if (name.length <= longest) return name;
  const end = Math.floor((longest - 1) / 3);
  return name.slice(0, longest - 1 - end) + "…" + (end ? name.slice(-end) : "");
}

/** Like `showName`, remembered: for the many labels of one picture. */
export function labelOf(name: string): string {
  let label = labels.get(name);
  if (label === undefined) {
    if (labels.size > 50_000) labels.clear();
    labels.set(name, (label = showName(name, 200)));
  }
  return label;
}

function sign(character: string): string {
  const code = character.charCodeAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code); // pictures of control characters
  if (code === 0x7f) return "␡";
  return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
}
