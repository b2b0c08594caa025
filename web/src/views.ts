// All views, in any order: the session says which there are and how they follow each other.
import { flame } from "./flame";
import { timeline } from "./timeline";
import type { View } from "./view";

// Each takes documents of its own type; the session pairs them by name.
export const VIEWS: View<any>[] = [timeline, flame];
