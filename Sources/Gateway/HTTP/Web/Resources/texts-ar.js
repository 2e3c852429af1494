// Carillon · texts-ar.js
// SPDX-License-Identifier: Apache-2.0

const rules = new Intl.PluralRules("ar");
/** Returns the form for a count. */
const counted = (count, forms) => forms[rules.select(count)];
/** Quotes a text that may run from left to right, so that its punctuation stays with it. */
const quoted = (text) => `«\u2068${text}\u2069»`;
const unread = (count) => counted(count, {
  zero: "لا شيء غير مقروء", one: "واحد غير مقروء", two: "اثنان غير مقروءين",
  few: `${count} غير مقروءة`, many: `${count} غير مقروء`, other: `${count} غير مقروء`,
});

export default {
  notifications: "الإشعارات",
  bell: (count) => (count ? `الإشعارات، ${unread(count)}` : "الإشعارات"),
  all: "الكل", unread: "غير المقروءة",
  markAllRead: "تمييز الكل كمقروء", markRead: "تمييز كمقروء", remove: "حذف", removeRead: "حذف كل الإشعارات المقروءة",
  loadMore: "عرض الأقدم", loading: "جارٍ التحميل…", justNow: "الآن", isUnread: "غير مقروء",
  severity: { alert: "عاجل", warning: "تحذير", info: "" },
  emptyTitle: "لا جديد حاليًا", emptyText: "ستظهر الإشعارات الجديدة هنا فور وصولها.",
  emptyUnreadTitle: "اطّلعت على كل شيء", emptyUnreadText: "لقد قرأت كل إشعاراتك.",
  failedTitle: "تعذّر تحميل إشعاراتك", failedText: "نواصل المحاولة.", tryNow: "المحاولة الآن",
  offline: "أنت غير متصل بالإنترنت. قد لا تكون هذه القائمة محدّثة.", connecting: "جارٍ الاتصال…",
  displaced: "الوارد مفتوح في أماكن كثيرة جدًا، ولم يعد يُحدَّث هنا.",
  notSaved: "تعذّر الحفظ: لا يوجد اتصال.", refused: "تعذّر تنفيذ الإجراء.",
  arrived: (title) => `إشعار جديد: ${title}`, noAction: (title) => `الإجراء ${quoted(title)} غير متاح في هذه الصفحة.`,
  archive: "أرشفة", archived: "الأرشيف", restore: "نقل إلى الوارد", markUnread: "تمييز كغير مقروء",
  moreFor: (title) => `خيارات أخرى للإشعار ${quoted(title)}`, menu: "القائمة",
  snooze: "تأجيل", snoozeTimes: { hour: "بعد ساعة", evening: "هذا المساء", tomorrow: "صباح الغد", week: "الاثنين القادم" },
  snoozedDone: (time) => `سيظهر مجددًا ${/^\p{Nd}/u.test(time) ? "الساعة " : ""}${time}`,
  archivedDone: "تمت الأرشفة", restoredDone: "أُعيد إلى الوارد", removedDone: "تم الحذف",
  undo: "تراجع",
  mute: (type) => `إيقاف ${quoted(type)}`, mutedDone: (type) => `تم إيقاف ${quoted(type)}. يمكنك إعادة التفعيل من الإعدادات.`,
  fresh: (count) => counted(count, {
    zero: "لا إشعارات جديدة", one: "إشعار جديد واحد", two: "إشعاران جديدان",
    few: `${count} إشعارات جديدة`, many: `${count} إشعارًا جديدًا`, other: `${count} إشعار جديد`,
  }),
  emptyArchiveTitle: "لا شيء في الأرشيف", emptyArchiveText: "أرشِف ما لا تريد رؤيته في الوارد. يبقى هنا لمدة عام.",
  emptyCategoryTitle: "لا شيء هنا", emptyCategoryText: "تظهر هنا الإشعارات من هذا النوع.",
  email: "البريد الإلكتروني", emailAddress: "العنوان", emailText: "تُرسَل إشعارات البريد الإلكتروني إلى هذا العنوان.",
  notAnAddress: "أدخل عنوانًا مثل ada@example.com.",
  emailSwitch: "عدم إرسال رسائل بريد إلكتروني إليّ",
  settings: "الإعدادات", back: "العودة إلى الإشعارات", close: "إغلاق",
  quietHours: "ساعات الهدوء", quietSwitch: "استخدام ساعات الهدوء", quietText: "في هذه الساعات تصلك الإشعارات بصمت وتنتظرك في الوارد.",
  from: "من", until: "إلى", days: "الأيام", zone: "المنطقة الزمنية", save: "حفظ", saved: "تم الحفظ", unsaved: "لم يُحفظ بعد",
  noDay: "اختر يومًا واحدًا على الأقل أو أوقف ساعات الهدوء.", noTime: "أدخل وقتين مختلفين.",
  browserPush: "هذا المتصفح", pushSwitch: "الإشعارات الفورية", browserPushText: "تصلك الإشعارات حتى عندما تكون هذه الصفحة مغلقة.",
  pushDenied: "يحظر هذا المتصفح إشعارات هذا الموقع. يمكنك تغيير ذلك من إعداداته.",
  pushUnavailable: "غير متاح هنا.", pushUnsupported: "لا يدعم هذا المتصفح الإشعارات الفورية.", pushFailed: "تعذّر تفعيل الإشعارات الفورية.",
  whatYouGet: "ما يصلك", channels: { in_app: "الوارد", push: "إشعار فوري", email: "بريد إلكتروني" },
  emailMissing: "لا تصلك رسائل البريد الإلكتروني: عنوانك مفقود أو رفضه خادم بريدك.",
  required: "مفعّل دائمًا", other: "أخرى", preferencesFailed: "تعذّر تحميل إعداداتك.",
  pauseAll: "إيقاف الكل مؤقتًا", pauseSwitch: "عدم إرسال أي شيء إليّ", pauseAllText: "يوقف كل الإشعارات باستثناء الضرورية.",
  signedOutTitle: "تم تسجيل خروجك", signedOutText: "سجّل الدخول مجددًا لرؤية إشعاراتك.",
  signInTitle: "إشعاراتك", signInText: "سجّل الدخول باستخدام رمز من تطبيقك.", tokenHint: "للتجربة: gateway token --user ada",
  token: "الرمز", notAToken: "هذا ليس رمزًا صحيحًا: يتكوّن الرمز من ثلاثة أجزاء تفصل بينها نقاط.", stay: "البقاء مسجّل الدخول في هذا المتصفح",
  signIn: "تسجيل الدخول", signOut: "تسجيل الخروج", tokenRefused: "رُفض الرمز أو انتهت صلاحيته.",
  linkSignsIn: (name, now) =>
    `يريد رابط تسجيل دخولك باسم \u2068${name}\u2069.${now ? ` أنت مسجّل الدخول حاليًا باسم \u2068${now}\u2069.` : ""}`,
  declineLink: "لا، أبقِ الوضع كما هو",
};
