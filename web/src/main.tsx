// Where the page begins: its data, then everything else.
import { render } from "preact";
import { App } from "./app";
import { openDocuments } from "./documents";
import "./theme.css";

const place = document.getElementById("app");
if (place) render(<App documents={openDocuments()} />, place);
