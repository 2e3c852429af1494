// Carillon · MailTexts.swift
// SPDX-License-Identifier: Apache-2.0

/// Carillon's own texts in e-mails and on the unsubscribe page.
package struct MailTexts: Sendable {
    private static let languages = ["en", "de", "fr", "es", "pt", "ja", "ar"]

    /// The language, for HTML's `lang`.
    package let language: String
    /// The button that opens the notification's link.
    package let open: String
    /// The text of the unsubscribe link for a type without a title.
    package let unsubscribe: String
    package let question: String
    package let explanation: String
    package let type: String
    package let stopAll: String
    package let done: String
    package let stoppedAll: String
    package let wayBack: String
    /// The text of the page for an invalid link.
    package let refused: String
    private let quotes: (String, String)
    private let stop: (String, String)
    private let stopped: (String, String)

    package func stopType(_ name: String) -> String { self.sentence(self.stop, name) }
    package func stoppedType(_ name: String) -> String { self.sentence(self.stopped, name) }

    private func sentence(_ parts: (String, String), _ name: String) -> String {
        parts.0 + self.quotes.0 + name + self.quotes.1 + parts.1
    }

    /// - Parameter wanted: locales, the best first; English if none has texts here.
    package init(languages wanted: [String]) {
        let known = wanted.lazy.map { $0.lowercased().prefix { $0.isLetter } }
        switch known.first(where: { Self.languages.contains(String($0)) }) {
        case "de":
            self.language = "de"
            self.open = "Öffnen"
            self.unsubscribe = "Abbestellen"
            self.question = "E-Mails abbestellen?"
            self.explanation = "Ihre Mitteilungen in der App und auf Ihren Geräten bleiben, wie sie sind."
            self.type = "Art der Mitteilung"
            self.stopAll = "Alle E-Mails abbestellen"
            self.done = "Abbestellt"
            self.stoppedAll = "Sie bekommen keine E-Mails mehr, außer notwendigen."
            self.wayBack = "In den Einstellungen Ihrer Mitteilungen können Sie das jederzeit ändern."
            self.refused =
                "Dieser Link gilt nicht mehr. E-Mails können Sie in den Einstellungen Ihrer Mitteilungen abbestellen."
            self.quotes = ("„", "“")
            self.stop = ("E-Mails zu ", " abbestellen")
            self.stopped = ("Sie bekommen keine E-Mails mehr zu ", ".")
        case "fr":
            self.language = "fr"
            self.open = "Ouvrir"
            self.unsubscribe = "Se désabonner"
            self.question = "Ne plus recevoir d’e-mails ?"
            self.explanation = "Vos notifications dans l’application et sur vos appareils restent inchangées."
            self.type = "Type de notification"
            self.stopAll = "Arrêter tous les e-mails"
            self.done = "Désabonné"
            self.stoppedAll = "Vous ne recevrez plus d’e-mails, sauf ceux qui sont indispensables."
            self.wayBack = "Vous pouvez revenir sur ce choix dans les réglages de vos notifications."
            self.refused =
                "Ce lien n’est plus valable. Vous pouvez arrêter les e-mails dans les réglages de vos notifications."
            self.quotes = ("« ", " »")
            self.stop = ("Arrêter les e-mails ", "")
            self.stopped = ("Vous ne recevrez plus d’e-mails ", ".")
        case "es":
            self.language = "es"
            self.open = "Abrir"
            self.unsubscribe = "Cancelar suscripción"
            self.question = "¿Dejar de recibir correos?"
            self.explanation = "Tus notificaciones en la app y en tus dispositivos no cambian."
            self.type = "Tipo de notificación"
            self.stopAll = "Dejar de recibir todos los correos"
            self.done = "Suscripción cancelada"
            self.stoppedAll = "Ya no recibirás más correos, salvo los imprescindibles."
            self.wayBack = "Puedes cambiarlo en cualquier momento en la configuración de tus notificaciones."
            self.refused =
                "Este enlace ya no sirve. Puedes dejar de recibir correos en la configuración de tus notificaciones."
            self.quotes = ("«", "»")
            self.stop = ("Dejar de recibir correos sobre ", "")
            self.stopped = ("Ya no recibirás más correos sobre ", ".")
        case "pt":
            self.language = "pt"
            self.open = "Abrir"
            self.unsubscribe = "Cancelar inscrição"
            self.question = "Deixar de receber e-mails?"
            self.explanation = "As notificações no app e nos seus dispositivos continuam como estão."
            self.type = "Tipo de notificação"
            self.stopAll = "Deixar de receber todos os e-mails"
            self.done = "Inscrição cancelada"
            self.stoppedAll = "Você não receberá mais e-mails, exceto os essenciais."
            self.wayBack = "Você pode mudar isso a qualquer momento nas configurações de notificações."
            self.refused =
                "Este link não é mais válido. Você pode deixar de receber e-mails nas configurações de notificações."
            self.quotes = ("“", "”")
            self.stop = ("Deixar de receber e-mails sobre ", "")
            self.stopped = ("Você não receberá mais e-mails sobre ", ".")
        case "ja":
            self.language = "ja"
            self.open = "開く"
            self.unsubscribe = "配信を停止"
            self.question = "メールの配信を停止しますか？"
            self.explanation = "アプリやデバイスへの通知は、これまでどおり届きます。"
            self.type = "通知の種類"
            self.stopAll = "すべてのメールの配信を停止"
            self.done = "配信を停止しました"
            self.stoppedAll = "必須のものを除き、今後メールは届きません。"
            self.wayBack = "通知の設定からいつでも変更できます。"
            self.refused = "このリンクは無効です。メールの配信は、通知の設定から停止できます。"
            self.quotes = ("「", "」")
            self.stop = ("", "に関するメールの配信を停止")
            self.stopped = ("今後、", "に関するメールは届きません。")
        case "ar":
            self.language = "ar"
            self.open = "فتح"
            self.unsubscribe = "إلغاء الاشتراك"
            self.question = "هل تريد إيقاف رسائل البريد الإلكتروني؟"
            self.explanation = "ستبقى إشعاراتك في التطبيق وعلى أجهزتك كما هي."
            self.type = "نوع الإشعار"
            self.stopAll = "إيقاف كل رسائل البريد الإلكتروني"
            self.done = "تم إلغاء الاشتراك"
            self.stoppedAll = "لن تصلك رسائل بريد إلكتروني بعد الآن، باستثناء الضرورية."
            self.wayBack = "يمكنك تغيير ذلك في أي وقت من إعدادات إشعاراتك."
            self.refused = "لم يعد هذا الرابط صالحًا. يمكنك إيقاف رسائل البريد الإلكتروني من إعدادات إشعاراتك."
            // Isolated, so that the punctuation of a name in Latin letters stays with it.
            self.quotes = ("«\u{2068}", "\u{2069}»")
            self.stop = ("إيقاف رسائل البريد الإلكتروني بشأن ", "")
            self.stopped = ("لن تصلك بعد الآن رسائل بريد إلكتروني بشأن ", ".")
        default:
            self.language = "en"
            self.open = "Open"
            self.unsubscribe = "Unsubscribe"
            self.question = "Unsubscribe from e-mail?"
            self.explanation = "Your notifications in the app and on your devices stay as they are."
            self.type = "Type of notification"
            self.stopAll = "Stop all e-mail"
            self.done = "Unsubscribed"
            self.stoppedAll = "You will get no more e-mail, except required messages."
            self.wayBack = "You can change this at any time in your notification settings."
            self.refused = "This link is no longer valid. You can stop e-mail in your notification settings."
            self.quotes = ("“", "”")
            self.stop = ("Stop e-mail about ", "")
            self.stopped = ("You will get no more e-mail about ", ".")
        }
    }
}
