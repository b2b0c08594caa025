import type { FlameDocument } from "./types.gen";
import type { View, ViewProps } from "./view";

function Flame({ document }: ViewProps<FlameDocument>) {
  return <p>{document.parent.length} frames</p>;
}

export const flame: View<FlameDocument> = { name: "flame", component: Flame, searches: true };
