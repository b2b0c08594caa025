// Light or dark: as the system says, or as chosen here and remembered where the browser allows it.

export const THEMES = ["auto", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];
const KEY = "deepprof-theme";

/** Returns the theme chosen before. */
export function savedTheme(): Theme {
  try {
    return THEMES.find((theme) => theme === localStorage.getItem(KEY)) ?? "auto";
  } catch {
    return "auto"; // storage may be forbidden, for files and by settings
  }
}

/** Shows the page in `theme` from now on. */
export function showTheme(theme: Theme): void {
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // as above: it is not remembered
  }
}
