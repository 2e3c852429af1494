// Carillon · texts.js
// SPDX-License-Identifier: Apache-2.0

const en = {
  notifications: "Notifications", inbox: "Inbox",
  bell: (unread) => (unread ? `Notifications, ${unread} unread` : "Notifications"),
  all: "All", unread: "Unread", unreadCount: (count) => `${count} unread`,
  markAllRead: "Mark all as read", markRead: "Mark as read", remove: "Delete", removeRead: "Delete all that are read",
  loadMore: "Show older", loading: "Loading…", justNow: "now", isUnread: "Unread", open: "Open",
  severity: { alert: "Urgent", warning: "Warning", info: "" },
  emptyTitle: "All quiet", emptyText: "What is new appears here the moment it arrives.",
  emptyUnreadTitle: "Nothing left to read", emptyUnreadText: "You have read everything there is.",
  failedTitle: "Your notifications are out of reach", failedText: "We keep trying.", tryNow: "Try now",
  offline: "You are offline. This may not be the latest.", connecting: "Connecting…",
  displaced: "This inbox is open in too many places. It does not update here.",
  notSaved: "That could not be saved: no connection.", refused: "That did not work.",
  arrived: (title) => `New: ${title}`, noApp: "Open the app to do this.", dismiss: "Dismiss",
  settings: "Settings", back: "Back to notifications", close: "Close",
  quietHours: "Quiet hours", quietSwitch: "Keep quiet hours", quietText: "Nothing rings or buzzes in these hours. What arrives waits in your inbox.",
  from: "From", until: "Until", days: "Days", zone: "Time zone", save: "Save", saved: "Saved", unsaved: "Not saved yet",
  browserPush: "On this browser", pushSwitch: "Push notifications", browserPushText: "Tells you of new notifications while this page is closed.",
   pushDenied: "This browser blocks notifications from this site. Its settings can change that.",
  pushUnavailable: "Not offered here.", pushUnsupported: "This browser cannot do it.", pushFailed: "That could not be switched on.",
  whatYouGet: "What you get", channels: { in_app: "Inbox", push: "Push", email: "E-mail" },
  required: "Always on", other: "Other", preferencesFailed: "Your settings are out of reach.",
  pauseAll: "Pause everything", pauseSwitch: "Send me nothing", pauseAllText: "Stops everything but what you cannot refuse.",
  signedOutTitle: "You are signed out", signedOutText: "Sign in again to see your notifications.",
};

const de = {
  notifications: "Mitteilungen", inbox: "Eingang",
  bell: (unread) => (unread ? `Mitteilungen, ${unread} ungelesen` : "Mitteilungen"),
  all: "Alle", unread: "Ungelesen", unreadCount: (count) => `${count} ungelesen`,
  markAllRead: "Alle als gelesen markieren", markRead: "Als gelesen markieren", remove: "Löschen",
  removeRead: "Alle gelesenen löschen", loadMore: "Ältere zeigen", loading: "Lädt…", justNow: "jetzt",
  isUnread: "Ungelesen", open: "Öffnen", severity: { alert: "Dringend", warning: "Warnung", info: "" },
  emptyTitle: "Alles ruhig", emptyText: "Was neu ist, erscheint hier, sobald es eintrifft.",
  emptyUnreadTitle: "Nichts mehr zu lesen", emptyUnreadText: "Sie haben alles gelesen.",
  failedTitle: "Ihre Mitteilungen sind nicht erreichbar", failedText: "Wir versuchen es weiter.", tryNow: "Jetzt versuchen",
  offline: "Sie sind offline. Das ist vielleicht nicht der letzte Stand.", connecting: "Verbinde…",
  displaced: "Der Eingang ist an zu vielen Stellen offen. Hier wird er nicht aktualisiert.",
  notSaved: "Das ließ sich nicht speichern: keine Verbindung.", refused: "Das hat nicht geklappt.",
  arrived: (title) => `Neu: ${title}`, noApp: "Das geht in der App.", dismiss: "Schließen",
  settings: "Einstellungen", back: "Zurück zu den Mitteilungen", close: "Schließen",
  quietHours: "Ruhezeiten", quietSwitch: "Ruhezeiten einhalten", quietText: "In diesen Stunden klingelt nichts. Was eintrifft, wartet im Eingang.",
  from: "Von", until: "Bis", days: "Tage", zone: "Zeitzone", save: "Speichern", saved: "Gespeichert",
  unsaved: "Noch nicht gespeichert", browserPush: "In diesem Browser", pushSwitch: "Push-Mitteilungen",
  browserPushText: "Meldet Neues, auch wenn diese Seite geschlossen ist.",   pushDenied: "Dieser Browser blockiert Mitteilungen dieser Seite. Das lässt sich in seinen Einstellungen ändern.",
  pushUnavailable: "Wird hier nicht angeboten.", pushUnsupported: "Dieser Browser kann das nicht.",
  pushFailed: "Das ließ sich nicht einschalten.", whatYouGet: "Was Sie bekommen",
  channels: { in_app: "Eingang", push: "Push", email: "E-Mail" }, required: "Immer an", other: "Sonstiges",
  preferencesFailed: "Ihre Einstellungen sind nicht erreichbar.", pauseAll: "Alles anhalten", pauseSwitch: "Nichts schicken",
  pauseAllText: "Hält alles an, was sich ablehnen lässt.",
  signedOutTitle: "Sie sind abgemeldet", signedOutText: "Melden Sie sich wieder an, um Ihre Mitteilungen zu sehen.",
};

const ar = {
  notifications: "الإشعارات", inbox: "الوارد",
  bell: (unread) => (unread ? `الإشعارات، ${unread} غير مقروءة` : "الإشعارات"),
  all: "الكل", unread: "غير مقروءة", unreadCount: (count) => `${count} غير مقروءة`,
  markAllRead: "تعليم الكل كمقروء", markRead: "تعليم كمقروء", remove: "حذف", removeRead: "حذف كل المقروء",
  loadMore: "عرض الأقدم", loading: "جارٍ التحميل…", justNow: "الآن", isUnread: "غير مقروء", open: "فتح",
  severity: { alert: "عاجل", warning: "تحذير", info: "" },
  emptyTitle: "كل شيء هادئ", emptyText: "يظهر الجديد هنا لحظة وصوله.",
  emptyUnreadTitle: "لا شيء للقراءة", emptyUnreadText: "لقد قرأت كل شيء.",
  failedTitle: "تعذّر الوصول إلى إشعاراتك", failedText: "نواصل المحاولة.", tryNow: "حاول الآن",
  offline: "أنت غير متصل. قد لا يكون هذا الأحدث.", connecting: "جارٍ الاتصال…",
  displaced: "الوارد مفتوح في أماكن كثيرة جدًا. لا يُحدَّث هنا.",
  notSaved: "تعذّر الحفظ: لا يوجد اتصال.", refused: "لم ينجح ذلك.",
  arrived: (title) => `جديد: ${title}`, noApp: "افتح التطبيق للقيام بذلك.", dismiss: "إغلاق",
  settings: "الإعدادات", back: "العودة إلى الإشعارات", close: "إغلاق",
  quietHours: "ساعات الهدوء", quietSwitch: "الالتزام بساعات الهدوء", quietText: "لا يرنّ شيء في هذه الساعات. ما يصل ينتظر في الوارد.",
  from: "من", until: "إلى", days: "الأيام", zone: "المنطقة الزمنية", save: "حفظ", saved: "تم الحفظ", unsaved: "لم يُحفظ بعد",
  browserPush: "في هذا المتصفح", pushSwitch: "إشعارات الدفع", browserPushText: "يخبرك بالجديد عندما تكون هذه الصفحة مغلقة.",   pushDenied: "يحظر هذا المتصفح إشعارات هذا الموقع. يمكن تغيير ذلك من إعداداته.",
  pushUnavailable: "غير متاح هنا.", pushUnsupported: "لا يدعم هذا المتصفح ذلك.", pushFailed: "تعذّر التفعيل.",
  whatYouGet: "ما يصلك", channels: { in_app: "الوارد", push: "دفع", email: "بريد" }, required: "دائمًا", other: "أخرى",
  preferencesFailed: "تعذّر الوصول إلى إعداداتك.", pauseAll: "إيقاف الكل", pauseSwitch: "لا ترسل شيئًا",
  pauseAllText: "يوقف كل ما يمكن رفضه.",
  signedOutTitle: "تم تسجيل خروجك", signedOutText: "سجّل الدخول مجددًا لرؤية إشعاراتك.",
};

const languages = { en, de, ar };
const rightToLeft = new Set(["ar", "fa", "he", "ur"]);

/** Which of the languages that there are comes next to what the reader wants, and which way it runs. */
export function language(wanted = navigator.languages) {
  const found = [wanted].flat().find((tag) => languages[tag?.split("-")[0].toLowerCase()]) ?? "en";
  const base = found.split("-")[0].toLowerCase();
  return { tag: found, texts: languages[base], direction: rightToLeft.has(base) ? "rtl" : "ltr" };
}
