// What is selected, one selection for all views. It stands in the address's fragment: `#timeline?loop=0&iteration=7`.
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";

export interface Selection {
  view: string;
  document?: string; // its key, where a view has several that are about the same
  loop?: number;
  rank?: number;
  iteration?: number;
  box?: number; // a row of the document: a box, a frame
  finding?: number;
  measure?: string;
  search?: string;
}

export type Select = (change: Partial<Selection>, how?: "push" | "replace") => void;

const NUMBERS = ["loop", "rank", "iteration", "box", "finding"] as const;
const TEXTS = ["document", "measure", "search"] as const;
const LONGEST = 500; // characters of a text

/** Returns the selection of a fragment, with or without `#`; what is no valid selection is left out. */
export function parseSelection(fragment: string): Selection {
  const [view, query = ""] = split(fragment.replace(/^#/, ""));
  const selection: Selection = { view: /^[a-z][a-z-]{0,40}$/.test(view) ? view : "" };
  const given = new URLSearchParams(query);
  for (const name of NUMBERS) {
    const text = given.get(name);
    if (text !== null && /^\d{1,15}$/.test(text)) selection[name] = Number(text);
  }
  for (const name of TEXTS) {
    const text = given.get(name);
    if (text) selection[name] = text.slice(0, LONGEST);
  }
  return selection;
}

/** Returns the fragment of a selection, without `#`. */
export function formatSelection(selection: Selection): string {
  const query = new URLSearchParams();
  for (const name of [...NUMBERS, ...TEXTS]) {
    const value = selection[name];
    if (value !== undefined && value !== "") query.set(name, String(value));
  }
  const text = query.toString();
  return selection.view + (text ? `?${text}` : "");
}

/** Returns the selection after `change`: what depends on something that changes goes, unless it is given too. */
export function changeSelection(selection: Selection, change: Partial<Selection>): Selection {
  const changes = (name: keyof Selection) => name in change && change[name] !== selection[name];
  const next: Selection = { ...selection };
  if (changes("view")) (delete next.document, delete next.measure);
  if (changes("loop")) delete next.iteration;
  if (changes("loop") || changes("rank")) delete next.document;
  if (["view", "loop", "rank", "iteration", "document"].some((name) => changes(name as keyof Selection))) delete next.box;
  return { ...next, ...change };
}

const SETTLED_MS = 200; // browsers refuse to change the address much more often

/** The selection of the address, and how to change it; the browser's back and forward work. */
export function useSelection(): [Selection, Select] {
  const [fragment, setFragment] = useState(location.hash);
  const now = useRef(fragment);
  const settling = useRef(0);
  const show = (next: string) => setFragment((now.current = next));
  useEffect(() => {
    const moved = () => (clearTimeout(settling.current), show(location.hash));
    addEventListener("popstate", moved);
    addEventListener("hashchange", moved);
    return () => (removeEventListener("popstate", moved), removeEventListener("hashchange", moved));
  }, []);
  const select = useCallback<Select>((change, how = "push") => {
    const next = "#" + formatSelection(changeSelection(parseSelection(now.current), change));
    if (next === now.current) return;
    clearTimeout(settling.current);
    if (how === "replace") settling.current = window.setTimeout(() => history.replaceState(null, "", next), SETTLED_MS);
    else {
      if (location.hash !== now.current && now.current) history.replaceState(null, "", now.current);
      history.pushState(null, "", next);
    }
    show(next);
  }, []);
  return [useMemo(() => parseSelection(fragment), [fragment]), select];
}

function split(text: string): [string, string?] {
  const at = text.indexOf("?");
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}
