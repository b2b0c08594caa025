import { editorAddress } from "../inspector";
import type { CodePlace } from "../types.gen";
import { Name } from "./name";

/** A line of code in few characters, for cells and lines; a link into the editor where that is possible. */
export function ShortSource({ place }: { place: CodePlace | null }) {
  if (place === null) return null;
  const text = `${place.file.split(/[/\\]/).slice(-2).join("/")}:${place.line}`;
  const address = editorAddress(place.file, place.line);
  const name = <Name text={text} whole={`${place.function} ${place.file}:${place.line}`.trim()} longest={48} />;
  return address === null ? name : <a href={address}>{name}</a>;
}
