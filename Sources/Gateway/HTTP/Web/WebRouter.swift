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
        for file in Self.pages { router.get("\(file.path)") { request, _ in file.response(to: request) } }
        for file in Self.parts { router.get("web/\(file.path)") { request, _ in file.response(to: request) } }
    }

    private static var pages: [WebFile] {
        [
            WebFile("", PackageResources.index_html, type: Self.html),
            WebFile("admin", PackageResources.admin_html, type: Self.html),
            WebFile("carillon.js", PackageResources.carillon_js, type: Self.script),
            // A service worker controls only paths below its own, so it is served at the root.
            WebFile("sw.js", PackageResources.sw_js, type: Self.script),
            WebFile("manifest.webmanifest", PackageResources.manifest_webmanifest, type: "application/manifest+json"),
        ]
    }

    /// The parts of the pages, below `/web/`.
    private static var parts: [WebFile] {
        [
            WebFile("icon.svg", PackageResources.icon_svg, type: Self.picture),
            WebFile("icon-192.png", PackageResources.icon_192_png, type: Self.bitmap),
            WebFile("icon-512.png", PackageResources.icon_512_png, type: Self.bitmap),
            WebFile("badge.png", PackageResources.badge_png, type: Self.bitmap),
            WebFile("page.css", PackageResources.page_css, type: Self.style),
            WebFile("admin.css", PackageResources.admin_css, type: Self.style),
            WebFile("dom.js", PackageResources.dom_js, type: Self.script),
            WebFile("time.js", PackageResources.time_js, type: Self.script),
            WebFile("icons.js", PackageResources.icons_js, type: Self.script),
            WebFile("marks.js", PackageResources.marks_js, type: Self.script),
            WebFile("menu.js", PackageResources.menu_js, type: Self.script),
            WebFile("words.js", PackageResources.words_js, type: Self.script),
            WebFile("texts.js", PackageResources.texts_js, type: Self.script),
            WebFile("texts-ar.js", PackageResources.texts_ar_js, type: Self.script),
            WebFile("texts-de.js", PackageResources.texts_de_js, type: Self.script),
            WebFile("texts-es.js", PackageResources.texts_es_js, type: Self.script),
            WebFile("texts-fr.js", PackageResources.texts_fr_js, type: Self.script),
            WebFile("texts-ja.js", PackageResources.texts_ja_js, type: Self.script),
            WebFile("texts-pt.js", PackageResources.texts_pt_js, type: Self.script),
            WebFile("session.js", PackageResources.session_js, type: Self.script),
            WebFile("index.js", PackageResources.index_js, type: Self.script),
            WebFile("inbox.js", PackageResources.inbox_js, type: Self.script),
            WebFile("inbox-client.js", PackageResources.inbox_client_js, type: Self.script),
            WebFile("inbox-connection.js", PackageResources.inbox_connection_js, type: Self.script),
            WebFile("inbox-item.js", PackageResources.inbox_item_js, type: Self.script),
            WebFile("inbox-list.js", PackageResources.inbox_list_js, type: Self.script),
            WebFile("inbox-panel.js", PackageResources.inbox_panel_js, type: Self.script),
            WebFile("inbox-pictures.js", PackageResources.inbox_pictures_js, type: Self.script),
            WebFile("inbox-push.js", PackageResources.inbox_push_js, type: Self.script),
            WebFile("inbox-settings.js", PackageResources.inbox_settings_js, type: Self.script),
            WebFile("inbox-store.js", PackageResources.inbox_store_js, type: Self.script),
            WebFile("inbox-styles.js", PackageResources.inbox_styles_js, type: Self.script),
            WebFile("admin.js", PackageResources.admin_js, type: Self.script),
            WebFile("admin-broadcasts.js", PackageResources.admin_broadcasts_js, type: Self.script),
            WebFile("admin-catalog.js", PackageResources.admin_catalog_js, type: Self.script),
            WebFile("admin-charts.js", PackageResources.admin_charts_js, type: Self.script),
            WebFile("admin-compose.js", PackageResources.admin_compose_js, type: Self.script),
            WebFile("admin-dead-letters.js", PackageResources.admin_dead_letters_js, type: Self.script),
            WebFile("admin-deliveries.js", PackageResources.admin_deliveries_js, type: Self.script),
            WebFile("admin-figures.js", PackageResources.admin_figures_js, type: Self.script),
            WebFile("admin-filters.js", PackageResources.admin_filters_js, type: Self.script),
            WebFile("admin-forms.js", PackageResources.admin_forms_js, type: Self.script),
            WebFile("admin-history.js", PackageResources.admin_history_js, type: Self.script),
            WebFile("admin-job.js", PackageResources.admin_job_js, type: Self.script),
            WebFile("admin-jobs.js", PackageResources.admin_jobs_js, type: Self.script),
            WebFile("admin-json.js", PackageResources.admin_json_js, type: Self.script),
            WebFile("admin-letter-bulk.js", PackageResources.admin_letter_bulk_js, type: Self.script),
            WebFile("admin-letter-form.js", PackageResources.admin_letter_form_js, type: Self.script),
            WebFile("admin-letter-list.js", PackageResources.admin_letter_list_js, type: Self.script),
            WebFile("admin-letter.js", PackageResources.admin_letter_js, type: Self.script),
            WebFile("admin-outages.js", PackageResources.admin_outages_js, type: Self.script),
            WebFile("admin-overview.js", PackageResources.admin_overview_js, type: Self.script),
            WebFile("admin-parts.js", PackageResources.admin_parts_js, type: Self.script),
            WebFile("admin-people.js", PackageResources.admin_people_js, type: Self.script),
            WebFile("admin-preview.js", PackageResources.admin_preview_js, type: Self.script),
            WebFile("admin-resend.js", PackageResources.admin_resend_js, type: Self.script),
            WebFile("admin-simulate.js", PackageResources.admin_simulate_js, type: Self.script),
            WebFile("admin-trace.js", PackageResources.admin_trace_js, type: Self.script),
            WebFile("admin-type.js", PackageResources.admin_type_js, type: Self.script),
            WebFile("admin-words.js", PackageResources.admin_words_js, type: Self.script),
        ]
    }
}
