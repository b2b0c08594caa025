import type { TimelineDocument } from "./types.gen";
import type { View, ViewProps } from "./view";

function Timeline({ document }: ViewProps<TimelineDocument>) {
  return <p>{document.tracks.length} tracks</p>;
}

export const timeline: View<TimelineDocument> = { name: "timeline", component: Timeline, searches: true };
