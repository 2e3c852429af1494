// Carillon · texts-es.js
// SPDX-License-Identifier: Apache-2.0

/** Returns the article of a time of day or a weekday; “mañana” has none. */
function article(time) {
  if (/^0?1:/.test(time)) return "la ";
  if (/^\d/.test(time)) return "las ";
  return /^(lun|mar|mié|jue|vie|sáb|dom)/i.test(time) ? "el " : "";
}

export default {
  notifications: "Notificaciones",
  bell: (unread) => (unread ? `Notificaciones, ${unread} sin leer` : "Notificaciones"),
  all: "Todas", unread: "Sin leer",
  markAllRead: "Marcar todo como leído", markRead: "Marcar como leída", remove: "Eliminar", removeRead: "Eliminar todas las notificaciones leídas",
  loadMore: "Mostrar anteriores", loading: "Cargando…", justNow: "ahora", isUnread: "Sin leer",
  severity: { alert: "Urgente", warning: "Advertencia", info: "" },
  emptyTitle: "Todo tranquilo", emptyText: "Las notificaciones nuevas aparecerán aquí en cuanto lleguen.",
  emptyUnreadTitle: "Estás al día", emptyUnreadText: "Has leído todas tus notificaciones.",
  failedTitle: "No se pudieron cargar tus notificaciones", failedText: "Seguimos intentándolo.", tryNow: "Reintentar ahora",
  offline: "No tienes conexión. Es posible que esta lista no esté actualizada.", connecting: "Conectando…",
  displaced: "Esta bandeja está abierta en demasiados sitios. Aquí ya no se actualiza.",
  notSaved: "No se pudo guardar: no hay conexión.", refused: "No se pudo completar la acción.",
  arrived: (title) => `Nueva notificación: ${title}`, noAction: (title) => `«${title}» no está disponible en esta página.`,
  archive: "Archivar", archived: "Archivadas", restore: "Mover a la bandeja de entrada", markUnread: "Marcar como no leída",
  moreFor: (title) => `Más opciones para «${title}»`, menu: "Menú",
  snooze: "Posponer", snoozeTimes: { hour: "En una hora", evening: "Esta tarde", tomorrow: "Mañana por la mañana", week: "El próximo lunes" },
  snoozedDone: (time) => `Pospuesta hasta ${article(time)}${time}`, archivedDone: "Notificación archivada",
  restoredDone: "De nuevo en tu bandeja de entrada", removedDone: "Notificación eliminada",
  undo: "Deshacer",
  mute: (type) => `Desactivar «${type}»`, mutedDone: (type) => `Has desactivado «${type}». Puedes cambiarlo en la configuración.`,
  fresh: (count) => (count === 1 ? "1 notificación nueva" : `${count} notificaciones nuevas`),
  emptyArchiveTitle: "Nada archivado", emptyArchiveText: "Archiva lo que no quieras tener a la vista. Se conserva aquí durante un año.",
  emptyCategoryTitle: "Nada por aquí", emptyCategoryText: "Las notificaciones de este tipo aparecerán aquí.",
  email: "Correo electrónico", emailAddress: "Dirección", emailText: "Las notificaciones por correo se envían a esta dirección.",
  notAnAddress: "Escribe una dirección como ada@example.com.",
  emailSwitch: "No enviarme correos",
  settings: "Configuración", back: "Volver a las notificaciones", close: "Cerrar",
  quietHours: "Horas de silencio", quietSwitch: "Usar horas de silencio",
  quietText: "Durante estas horas, las notificaciones no suenan y te esperan en tu bandeja de entrada.",
  from: "Desde", until: "Hasta", days: "Días", zone: "Zona horaria", save: "Guardar", saved: "Guardado", unsaved: "Sin guardar",
  noDay: "Elige al menos un día o desactiva las horas de silencio.", noTime: "Indica dos horas distintas.",
  browserPush: "Este navegador", pushSwitch: "Notificaciones push", browserPushText: "Te avisa cuando esta página está cerrada.",
  pushDenied: "Este navegador bloquea las notificaciones de este sitio. Puedes cambiarlo en su configuración.",
  pushUnavailable: "No disponible aquí.", pushUnsupported: "Este navegador no admite notificaciones push.",
  pushFailed: "No se pudieron activar las notificaciones push.",
  whatYouGet: "Qué recibes", channels: { in_app: "Bandeja de entrada", push: "Push", email: "Correo" },
  emailMissing: "No recibes correos: falta tu dirección o tu servidor de correo la ha rechazado.",
  required: "Siempre activado", other: "Otras", preferencesFailed: "No se pudo cargar tu configuración.",
  pauseAll: "Pausar todo", pauseSwitch: "No enviarme nada", pauseAllText: "Detiene todas las notificaciones, salvo las imprescindibles.",
  signedOutTitle: "Se ha cerrado tu sesión", signedOutText: "Vuelve a iniciar sesión para ver tus notificaciones.",
  signInTitle: "Tus notificaciones", signInText: "Inicia sesión con un token de tu app.", tokenHint: "Para probarlo: gateway token --user ada",
  token: "Token", notAToken: "Esto no es un token: un token tiene tres partes separadas por puntos.",
  stay: "Mantener la sesión iniciada en este navegador",
  signIn: "Iniciar sesión", signOut: "Cerrar sesión", tokenRefused: "El token se ha rechazado o ha caducado.",
  linkSignsIn: (name, now) => `Un enlace quiere iniciar tu sesión como ${name}.${now ? ` Ahora mismo tu sesión está iniciada como ${now}.` : ""}`,
  declineLink: "No, dejarlo como está",
};
