// Carillon · WebRouter.swift
// SPDX-License-Identifier: Apache-2.0

import Hummingbird

/// Serves the files for browsers: the inbox, the element to embed, the service worker and the admin
/// page.
///
/// The files are public. The calls of the pages carry the user's token.
package enum WebRouter {
    private static let html = "text/html; charset=utf-8"
    private static let script = "text/javascript; charset=utf-8"
    private static let style = "text/css; charset=utf-8"
    private static let picture = "image/svg+xml"
    private static let bitmap = "image/png"

    /// Adds the routes.
    package static func add<Context: RequestContext>(to router: Router<Context>) {
        let files = Self.pages + Self.parts.map { ("web/\($0.name)", $0.bytes, $0.type) }
        for (path, bytes, type) in files {
            let file = WebFile(bytes, type: type)
            router.get("\(path)") { request, _ in file.response(to: request) }
        }
    }

    private static var pages: [(path: String, bytes: [UInt8], type: String)] {
        [
            ("", PackageResources.index_html, Self.html),
            ("admin", PackageResources.admin_html, Self.html),
            ("carillon.js", PackageResources.carillon_js, Self.script),
            // A service worker controls only paths below its own, so it is served at the root.
            ("sw.js", PackageResources.sw_js, Self.script),
            ("manifest.webmanifest", PackageResources.manifest_webmanifest, "application/manifest+json"),
        ]
    }

    /// The parts of the pages, below `/web/`.
    private static var parts: [(name: String, bytes: [UInt8], type: String)] {
        [
            ("icon.svg", PackageResources.icon_svg, Self.picture),
            ("icon-192.png", PackageResources.icon_192_png, Self.bitmap),
            ("icon-512.png", PackageResources.icon_512_png, Self.bitmap),
            ("badge.png", PackageResources.badge_png, Self.bitmap),
            ("page.css", PackageResources.page_css, Self.style),
            ("admin.css", PackageResources.admin_css, Self.style),
            ("dom.js", PackageResources.dom_js, Self.script),
            ("time.js", PackageResources.time_js, Self.script),
            ("icons.js", PackageResources.icons_js, Self.script),
            ("marks.js", PackageResources.marks_js, Self.script),
            ("menu.js", PackageResources.menu_js, Self.script),
            ("words.js", PackageResources.words_js, Self.script),
            ("texts.js", PackageResources.texts_js, Self.script),
            ("texts-ar.js", PackageResources.texts_ar_js, Self.script),
            ("texts-de.js", PackageResources.texts_de_js, Self.script),
            ("texts-es.js", PackageResources.texts_es_js, Self.script),
            ("texts-fr.js", PackageResources.texts_fr_js, Self.script),
            ("texts-ja.js", PackageResources.texts_ja_js, Self.script),
            ("texts-pt.js", PackageResources.texts_pt_js, Self.script),
            ("session.js", PackageResources.session_js, Self.script),
            ("index.js", PackageResources.index_js, Self.script),
            ("inbox.js", PackageResources.inbox_js, Self.script),
            ("inbox-client.js", PackageResources.inbox_client_js, Self.script),
            ("inbox-connection.js", PackageResources.inbox_connection_js, Self.script),
            ("inbox-item.js", PackageResources.inbox_item_js, Self.script),
            ("inbox-list.js", PackageResources.inbox_list_js, Self.script),
            ("inbox-panel.js", PackageResources.inbox_panel_js, Self.script),
            ("inbox-pictures.js", PackageResources.inbox_pictures_js, Self.script),
            ("inbox-push.js", PackageResources.inbox_push_js, Self.script),
            ("inbox-settings.js", PackageResources.inbox_settings_js, Self.script),
            ("inbox-store.js", PackageResources.inbox_store_js, Self.script),
            ("inbox-styles.js", PackageResources.inbox_styles_js, Self.script),
            ("admin.js", PackageResources.admin_js, Self.script),
            ("admin-broadcasts.js", PackageResources.admin_broadcasts_js, Self.script),
            ("admin-catalog.js", PackageResources.admin_catalog_js, Self.script),
            ("admin-charts.js", PackageResources.admin_charts_js, Self.script),
            ("admin-compose.js", PackageResources.admin_compose_js, Self.script),
            ("admin-dead-letters.js", PackageResources.admin_dead_letters_js, Self.script),
            ("admin-deliveries.js", PackageResources.admin_deliveries_js, Self.script),
            ("admin-figures.js", PackageResources.admin_figures_js, Self.script),
            ("admin-filters.js", PackageResources.admin_filters_js, Self.script),
            ("admin-forms.js", PackageResources.admin_forms_js, Self.script),
            ("admin-history.js", PackageResources.admin_history_js, Self.script),
            ("admin-job.js", PackageResources.admin_job_js, Self.script),
            ("admin-jobs.js", PackageResources.admin_jobs_js, Self.script),
            ("admin-json.js", PackageResources.admin_json_js, Self.script),
            ("admin-letter-bulk.js", PackageResources.admin_letter_bulk_js, Self.script),
            ("admin-letter-form.js", PackageResources.admin_letter_form_js, Self.script),
            ("admin-letter-list.js", PackageResources.admin_letter_list_js, Self.script),
            ("admin-letter.js", PackageResources.admin_letter_js, Self.script),
            ("admin-outages.js", PackageResources.admin_outages_js, Self.script),
            ("admin-overview.js", PackageResources.admin_overview_js, Self.script),
            ("admin-parts.js", PackageResources.admin_parts_js, Self.script),
            ("admin-people.js", PackageResources.admin_people_js, Self.script),
            ("admin-preview.js", PackageResources.admin_preview_js, Self.script),
            ("admin-resend.js", PackageResources.admin_resend_js, Self.script),
            ("admin-simulate.js", PackageResources.admin_simulate_js, Self.script),
            ("admin-trace.js", PackageResources.admin_trace_js, Self.script),
            ("admin-type.js", PackageResources.admin_type_js, Self.script),
            ("admin-words.js", PackageResources.admin_words_js, Self.script),
        ]
    }
}
