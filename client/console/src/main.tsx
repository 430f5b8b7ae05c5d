import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import "./styles/tokens.css";
import "./styles/base.css";
import "./parts/parts.css";
import "./shell/shell.css";
import { language } from "./i18n/messages";
import { App } from "./shell/App";
import { applyTheme } from "./shell/theme";

document.documentElement.lang = language();
applyTheme();

const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <StrictMode>
      <App />
    </StrictMode>,
  );
}
