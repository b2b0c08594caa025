import type { CodePlace } from "../types.gen";
import { Name } from "./name";

/** Where an editor opens a line; null for a path that is not whole, for no editor would find it. */
export function editorAddress(file: string, line: number): string | null {
  const path = file.replaceAll("\\", "/");
  const isWhole = path.startsWith("/") || /^[A-Za-z]:\//.test(path);
  if (!isWhole) return null;
  const parts = path.split("/").map((part) => encodeURIComponent(part).replace(/^([A-Za-z])%3A$/, "$1:"));
  return `vscode://file/${parts.join("/").replace(/^\/+/, "")}:${line}:1`;
}

/** A line of code, as a link into the editor where that is possible. */
export function Source({ place }: { place: CodePlace | null }) {
  if (place === null) return null;
  const text = `${place.file.split(/[/\\]/).slice(-2).join("/")}:${place.line}`;
  const address = editorAddress(place.file, place.line);
  const name = <Name text={text} whole={`${place.function} ${place.file}:${place.line}`.trim()} longest={48} />;
  return address === null ? name : <a href={address}>{name}</a>;
}
