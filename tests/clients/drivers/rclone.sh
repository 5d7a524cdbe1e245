# rclone, S3
family='Package managers and the like'
line="politely run rclone copy s3:bucket directory"
quick=yes
returns=yes
install() { debian rclone; }
version() { rclone version | sed -n '1s/rclone v//p'; }
fetch() {
    for url; do
        endpoint=${url#*.}
        endpoint=${url%%://*}://${endpoint%%/*}
        bucket=${url#*://}
        politely run rclone cat --config /dev/null --retries 1 --low-level-retries 1 --s3-provider Other \
            --s3-force-path-style=false --s3-endpoint "$endpoint" ":s3:${bucket%%.*}/${url#*://*/}"
    done
}
