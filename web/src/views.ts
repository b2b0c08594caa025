// All views, in any order: the session says which there are and how they follow each other.
import { diff } from "./diff";
import { findings } from "./findings";
import { flame } from "./flame";
import { iterations } from "./iterations";
import { live } from "./live";
import { memory } from "./memory";
import { ranks } from "./ranks";
import { roofline } from "./roofline";
import { states } from "./states";
import { timeline } from "./timeline";
import type { View } from "./view";

// Each takes documents of its own type; the session pairs them by name.
export const VIEWS: View<any>[] = [findings, timeline, flame, iterations, states, roofline, ranks, diff, memory, live];
