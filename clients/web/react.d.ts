// Carillon · react.d.ts
// SPDX-License-Identifier: Apache-2.0

import type { DetailedHTMLProps, ForwardRefExoticComponent, HTMLAttributes, RefAttributes } from "react";
import type {
  CarillonAttributes, CarillonEvents, CarillonInbox as Element, RenderItem, Texts, TokenProvider,
} from "./index.js";

type Attributes = Omit<HTMLAttributes<Element>, keyof CarillonAttributes>;
type Handler<Name extends keyof CarillonEvents> = (event: CarillonEvents[Name]) => void;

/** The props of the inbox and of any element, such as `style` and the children for the slots. */
export interface CarillonInboxProps extends Attributes, Omit<CarillonAttributes, "url"> {
  /** The gateway, such as `https://notify.example.com`; `/` if it has the page's own origin. */
  url: string;
  /** Gives tokens instead of `token`. Keep it stable between renders: a new one reconnects. */
  tokenProvider?: TokenProvider;
  /** Words that replace those of the inbox. Keep functions in it stable between renders. */
  texts?: Partial<Texts>;
  /** Draws entries; may be inline. A new function draws only new and changed entries. */
  renderItem?: RenderItem;
  onUnread?: Handler<"carillon-unread">;
  onArrival?: Handler<"carillon-arrival">;
  onOpen?: Handler<"carillon-open">;
  onAction?: Handler<"carillon-action">;
  onEvent?: Handler<"carillon-event">;
  onSignedOut?: Handler<"carillon-signed-out">;
}

/** The inbox as a component. A ref gets the element, for its properties and methods. */
export const CarillonInbox: ForwardRefExoticComponent<CarillonInboxProps & RefAttributes<Element>>;

/**
 * Returns the unread count of the page's first inbox with this category and organisation, or of the
 * first that shows all; null until it is known.
 */
export function useUnread(category?: string, org?: string): number | null;

declare module "react" {
  namespace JSX {
    interface IntrinsicElements {
      "carillon-inbox": Omit<DetailedHTMLProps<HTMLAttributes<Element>, Element>, keyof CarillonAttributes>
        & CarillonAttributes & { class?: string };
    }
  }
}
